"""The documentation site: pages that are made from the code, and what mkdocs does with the others."""
