"""From a question to a plan: whose rows, as of which NOW, under which policies."""
