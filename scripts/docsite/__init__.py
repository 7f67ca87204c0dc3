"""The documentation site: pages made from the code, and what mkdocs does with others."""
