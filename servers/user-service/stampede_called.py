"""The application that a factory returns when it is called with the arguments of STAMPEDE_CALLABLE."""

import os

from stampede_own import load

application = load(os.environ["STAMPEDE_CALLABLE"])
