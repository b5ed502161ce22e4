"""The pages of ``s2s report``: text in, HTML text out; nothing is run."""
