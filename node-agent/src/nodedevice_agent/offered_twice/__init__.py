"""Which devices two sources of the node offer, so that each can be given out twice: the comparison, and what is published of it."""
