"""stampede manifests: every experiment is valid in every supported release of Kubernetes."""

import pytest

from stampede.experiment.file import names
from tests.quick.test_manifests import RELEASES, made, problem


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", names())
def test_the_first_variant_of_every_experiment_is_valid_in_kubernetes(name: str, release: str) -> None:
    """By the schemas of the API itself, which refuse keys that they do not know."""
    assert [found for one in made(name) if (found := (one["kind"], problem(one, release)))[1]] == []
