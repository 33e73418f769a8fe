"""Another name of `lowtide.integrations.lightning`."""

from .integrations.lightning import AdaptCallback as AdaptCallback
