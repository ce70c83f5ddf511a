"""Ways from a training process to an agent, by the scheme of a URL."""

from trimtab.hooks.transport.delivery import Delivered, deliver

__all__ = ["Delivered", "deliver"]
