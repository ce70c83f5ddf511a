"""`trimtab webhook`: who is told of what is wrong."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from trimtab.api.cli.errors import UsageError
from trimtab.api.cli.options import AsJson, Token, Url
from trimtab.api.cli.screen import Console
from trimtab.api.cli.tables import as_wide_as_shown, moment, table_of
from trimtab.api.client import DEFAULT_URL, Client
from trimtab.api.routes.webhook_views import DeliveryPage, DeliveryView, IssuedWebhook, Trial, Webhooks, WebhookView
from trimtab.storage.alert import AlertKind, Severity
from trimtab.storage.delivery import Status

webhook = typer.Typer(
    help="Tell people, pagers and programs of what is wrong.", add_completion=False, no_args_is_help=True
)

Which = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its id or its name.")]
Why = Annotated[str, typer.Option(help="Why, for the audit log.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--to",
        envvar="TRIMTAB_WEBHOOK_URL",
        help="Address; better in the variable where it is a credential, as Slack's and Discord's are.",
        show_default=False,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        envvar="TRIMTAB_WEBHOOK_KEY", help="PagerDuty's routing key; better in the variable.", show_default=False
    ),
]
Job = Annotated[list[str] | None, typer.Option(help="Jobs that it is told of, such as 'prod-*'; may be repeated.")]
Least = Annotated[Severity | None, typer.Option(help="The least that it is told of.")]
Kind = Annotated[list[AlertKind] | None, typer.Option(help="What it is told of; may be repeated.")]
Wait = Annotated[float | None, typer.Option(help="Seconds from a change until it is told.")]
Interval = Annotated[float | None, typer.Option(help="Least seconds between two messages on one job.")]
Repeat = Annotated[float | None, typer.Option(help="Seconds after which what still fires is told again; 0 for never.")]
Resolved = Annotated[
    bool | None, typer.Option("--resolved/--no-resolved", help="Whether it is told that something is over.")
]


@webhook.command()
def add(
    name: Annotated[str, typer.Argument(help="What it is called.")],
    shape: Annotated[str, typer.Argument(help="What it takes, such as slack, pagerduty or trimtab.")],
    to: Address = None,
    key: Key = None,
    job: Job = None,
    severity: Least = None,
    kind: Kind = None,
    group_wait: Wait = None,
    group_interval: Interval = None,
    repeat_interval: Repeat = None,
    resolved: Resolved = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Tell somebody more. Its secret is printed, alone, on standard output, and shown this once."""
    wanted = _given(
        url=to,
        key=key,
        jobs=job,
        severity=severity,
        kinds=kind,
        group_wait=group_wait,
        group_interval=group_interval,
        repeat_interval=repeat_interval,
        send_resolved=resolved,
    )
    with Client(url, token) as client:
        _show(client.add_webhook(name, shape, **wanted), as_json)


@webhook.command("list")
def list_webhooks(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """List who is told, without credentials."""
    with Client(url, token) as client:
        found = client.webhooks()
    if as_json:
        print(Webhooks(webhooks=found, next=None).model_dump_json())
        return
    table = table_of("id", "name", "shape", "to", "jobs", "from", "standing", whole="id")
    for one in found:
        standing = "enabled" if one.enabled else f"disabled: {one.disabled_reason}"
        table.add_row(one.id, one.name, one.shape, one.url, " ".join(one.jobs), one.severity.value, standing)
    as_wide_as_shown().print(table if found else "nobody is told yet", highlight=False)


@webhook.command()
def change(
    which: Which,
    name: Annotated[str | None, typer.Option(help="What it is called.")] = None,
    to: Address = None,
    key: Key = None,
    job: Job = None,
    severity: Least = None,
    kind: Kind = None,
    group_wait: Wait = None,
    group_interval: Interval = None,
    repeat_interval: Repeat = None,
    resolved: Resolved = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether it is told of anything.")] = None,
    reason: Why = "",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given, and leave the rest. One that is enabled again is told of what fires."""
    changes = _given(
        name=name,
        url=to,
        key=key,
        jobs=job,
        severity=severity,
        kinds=kind,
        group_wait=group_wait,
        group_interval=group_interval,
        repeat_interval=repeat_interval,
        send_resolved=resolved,
        enabled=enabled,
    )
    with Client(url, token) as client:
        changed = client.change_webhook(_id(client, which), **changes, reason=reason)
    _report(changed, "is changed", as_json)


@webhook.command("test")
def send_test(which: Which, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Send a test alert and say what became of it; exit status 1 where it did not arrive."""
    with Client(url, token) as client:
        sent = client.test_webhook(_id(client, which))
    if as_json:
        print(Trial(deliveries=sent).model_dump_json())
    else:
        for one in sent:
            said = {Status.DELIVERED: "arrived", Status.PENDING: "is not answered yet"}.get(
                one.status, "did not arrive"
            )
            Console(soft_wrap=True).print(f"{one.id} {said}{_why(one)}", highlight=False)
    if any(one.status is not Status.DELIVERED for one in sent):
        raise typer.Exit(1)


@webhook.command()
def rotate(
    which: Which,
    overlap: Annotated[float | None, typer.Option(help="Seconds for which the old secret signs too.")] = None,
    reason: Why = "",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Give it a new secret, which is printed, alone, on standard output, and shown this once."""
    with Client(url, token) as client:
        _show(client.rotate_webhook(_id(client, which), overlap=overlap, reason=reason), as_json)


@webhook.command()
def remove(
    which: Which, reason: Why = "", url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False
) -> None:
    """Tell somebody no more. To pause it, use `change --disable`."""
    with Client(url, token) as client:
        removed = client.remove_webhook(_id(client, which), reason=reason)
    _report(removed, "is told of nothing any more", as_json)


@webhook.command()
def deliveries(
    which: Which,
    status: Annotated[Status | None, typer.Option(help="Only those of which this became.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most that are listed.")] = 20,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """List what it was sent, the newest first."""
    with Client(url, token) as client:
        found = list(islice(client.deliveries(_id(client, which), status=status), limit))
    if as_json:
        print(DeliveryPage(deliveries=found, next=None).model_dump_json())
        return
    table = table_of("id", "at", "job", "status", "attempts", "what was wrong", whole="id")
    for one in found:
        table.add_row(one.id, moment(one.created_at), one.job or "test", one.status.value, str(one.attempts), one.error)
    as_wide_as_shown().print(table, highlight=False)


@webhook.command()
def retry(
    delivery: Annotated[str, typer.Argument(help="The delivery's id.")],
    reason: Why = "",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Send a message that died again, as it was."""
    with Client(url, token) as client:
        again = client.retry_delivery(delivery, reason=reason)
    if as_json:
        print(again.model_dump_json())
        return
    Console(soft_wrap=True).print(f"{again.id} is on its way again", highlight=False)


def _given(**fields: Any) -> dict[str, Any]:
    """The fields of a webhook that were given; an interval of no reminders is null."""
    given = {name: value for name, value in fields.items() if value is not None}
    return given | ({"repeat_interval": None} if given.get("repeat_interval") == 0 else {})


def _id(client: Client, which: str) -> str:
    found = [one.id for one in client.webhooks() if which in (one.id, one.name)]
    if not found:
        raise UsageError(f"webhook: there is no {which!r}; `trimtab webhook list` shows those that there are")
    return found[0]


def _show(issued: IssuedWebhook, as_json: bool) -> None:
    if as_json:
        print(issued.model_dump_json())
        return
    if issued.secret is not None:
        print(issued.secret, flush=True)
    kept = " Keep the secret now: it is not shown again." if issued.secret is not None else ""
    told = f"{issued.webhook.name} ({issued.webhook.id}) is told from {issued.webhook.severity.value} on.{kept}"
    Console(stderr=True, soft_wrap=True).print(told, highlight=False)


def _report(one: WebhookView, what: str, as_json: bool) -> None:
    if as_json:
        print(one.model_dump_json())
        return
    Console(soft_wrap=True).print(f"{one.name} ({one.id}) {what}", highlight=False)


def _why(one: DeliveryView) -> str:
    return f": {one.error}" if one.error else ""
