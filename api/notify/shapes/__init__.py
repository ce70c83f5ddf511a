"""The kinds of receivers, by the name that an endpoint gives."""

from __future__ import annotations

from trimtab.api.notify.shapes import alertmanager_api, alertmanager_webhook, discord, pagerduty, slack, trimtab
from trimtab.api.notify.shapes.shape import Shape

SHAPES: dict[str, Shape] = {
    "trimtab": trimtab.SHAPE,
    "slack": slack.SHAPE,
    "discord": discord.SHAPE,
    "pagerduty": pagerduty.SHAPE,
    "alertmanager_webhook": alertmanager_webhook.SHAPE,
    "alertmanager_api": alertmanager_api.SHAPE,
}
