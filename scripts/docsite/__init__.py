"""The documentation site: pages made from the code, and mkdocs' hooks for the other pages."""
