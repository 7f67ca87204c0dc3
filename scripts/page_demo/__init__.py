"""The controller's page without a cluster: a made-up history, and pictures of the page."""
