"""What runs inside users' jobs: the element's environment, its end, and progress reports.

Standard library and torch only; of the rest of the project it uses just the spec and the keeper's
client, so that a job's Python needs nothing installed.
"""
