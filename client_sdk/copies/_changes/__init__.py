"""Changes of an answer: what a sync and the passing of time did to it, kept until it is read."""
