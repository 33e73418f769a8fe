"""What every package needs and what needs none of them."""
