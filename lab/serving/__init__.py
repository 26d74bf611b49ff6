"""The options to serve a load: servers of the lab that could serve it, ranked by what theory predicts of them."""
