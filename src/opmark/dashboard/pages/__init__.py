"""One file a page: what is asked for, what is answered, and how the one becomes the other."""
