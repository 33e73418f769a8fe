"""What `lowtide.fit` says of devices that are not here."""
