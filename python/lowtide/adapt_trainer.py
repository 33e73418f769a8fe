"""Another name of `lowtide.integrations.trainer`."""

from .integrations.trainer import AdaptCallback as AdaptCallback
