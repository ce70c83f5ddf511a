"""Tokens: who may ask for what."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi import Body as BodyParameter
from pydantic import Field

from trimtab.api.access.issuing import MAX_OVERLAP_S, OVERLAP_S, TokenRuleError
from trimtab.api.access.scopes import Scope
from trimtab.api.problem import CONFLICT, MALFORMED, ApiError, Problems, named
from trimtab.api.routes.common import DoormanOf, PrincipalOf
from trimtab.api.views import Body, View
from trimtab.hooks.records import MAX_JOB_LENGTH
from trimtab.storage.tables.access import MAX_NAME_LENGTH
from trimtab.storage.tokens import SpentTokenError, StoredToken, UnknownTokenError

router = APIRouter(tags=["access"])

NOT_FOUND: dict[int | str, dict[str, Any]] = {
    HTTPStatus.NOT_FOUND: {"model": Problems, "description": "There is no such token."}
}
MAX_LIFE_S = 10 * 366 * 86_400
TokenId = Annotated[str, Path(max_length=8, description="The token's `id`.", examples=["Ab12Cd34"])]
Why = Annotated[str, Field(max_length=1000, description="Why, for the audit log.")]


class Standing(StrEnum):
    """Whether a token lets anybody in."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


class TokenView(View):
    """One token, without its secret. Times are Unix seconds."""

    id: str
    name: str
    scopes: list[Scope]
    job: str | None = Field(description="The one job that a trainer's token is for; null for others.")
    standing: Standing
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    old_secret_until: float | None = Field(description="Until when the secret before the last rotation is taken.")
    last_used_at: float | None = Field(description="To within minutes; null before the first use.")


class TokenList(View):
    """Every token that there ever was, oldest first."""

    tokens: list[TokenView]


class Issued(View):
    """A token with its secret, which is told once."""

    token: str = Field(description="What its holder sends: `Authorization: Bearer ttb_...`.")
    about: TokenView


class NewToken(Body):
    """A token that is wanted."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH, description="Who will hold it.")]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    job: Annotated[str, Field(max_length=MAX_JOB_LENGTH)] | None = Field(
        default=None, description="For the scope `ingest`, and for it alone: the job that it is for."
    )
    expires_in: Annotated[float, Field(strict=True, gt=0, le=MAX_LIFE_S)] | None = Field(
        default=None, description="Seconds that it lasts; null until it is revoked."
    )


class Rotation(Body):
    """How a secret is replaced."""

    overlap: Annotated[float, Field(strict=True, ge=0, le=MAX_OVERLAP_S)] = Field(
        default=OVERLAP_S, description="Seconds for which the old secret is taken still; 0 for one that leaked."
    )
    reason: Why = ""


NEW = [
    {"name": "trainer of cliff-auto", "scopes": ["ingest"], "job": "cliff-auto", "expires_in": 2_592_000},
    {"name": "ada", "scopes": ["control"]},
]


@router.get("/v1/tokens", summary="Every token")
def list_tokens(doorman: DoormanOf) -> TokenList:
    """Revoked ones included: the audit log names them."""
    now = doorman.clock()
    return TokenList(tokens=[token_view(token, now) for token in doorman.tokens.all()])


@router.post("/v1/tokens", status_code=HTTPStatus.CREATED, responses=MALFORMED, summary="Make a token")
def create_token(
    wanted: Annotated[NewToken, BodyParameter(examples=NEW)], doorman: DoormanOf, principal: PrincipalOf
) -> Issued:
    """Its secret is in this answer and nowhere else. With the first token, the service asks everybody for one."""
    try:
        stored, token = doorman.issuing.create(
            wanted.name, wanted.scopes, job=wanted.job, expires_in=wanted.expires_in, origin=principal.origin
        )
    except TokenRuleError as error:
        problem = named(str(error))
        raise ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, problem.field, problem.message) from error
    doorman.keyring.forget()
    return Issued(token=token.text, about=token_view(stored, doorman.clock()))


@router.post("/v1/tokens/{token}/rotate", responses={**NOT_FOUND, **CONFLICT, **MALFORMED}, summary="A new secret")
def rotate_token(
    token: TokenId,
    rotation: Annotated[Rotation, BodyParameter(examples=[{"overlap": 0, "reason": "it was in a log"}])],
    doorman: DoormanOf,
    principal: PrincipalOf,
) -> Issued:
    """The token keeps its id, its scopes and its end."""
    try:
        stored, fresh = doorman.issuing.rotate(
            token, overlap=rotation.overlap, reason=rotation.reason, origin=principal.origin
        )
    except UnknownTokenError as error:
        raise _unknown(error) from error
    except SpentTokenError as error:
        raise ApiError(HTTPStatus.CONFLICT, "token", named(str(error)).message, token) from error
    doorman.keyring.forget()
    return Issued(token=fresh.text, about=token_view(stored, doorman.clock()))


@router.delete("/v1/tokens/{token}", responses={**NOT_FOUND, **MALFORMED}, summary="Let nobody in with it any more")
def revoke_token(
    token: TokenId,
    doorman: DoormanOf,
    principal: PrincipalOf,
    reason: Annotated[Why, Query()] = "",
) -> TokenView:
    """At once in this process, and within seconds in others. The browsers that logged in with it are logged out."""
    try:
        stored = doorman.issuing.revoke(token, reason=reason, origin=principal.origin)
    except UnknownTokenError as error:
        raise _unknown(error) from error
    doorman.keyring.forget()
    return token_view(stored, doorman.clock())


def _unknown(error: UnknownTokenError) -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, "token", str(error), error.token)


def token_view(token: StoredToken, now: float) -> TokenView:
    """What is told of a token."""
    revoked = token.revoked_at is not None
    standing = Standing.REVOKED if revoked else Standing.VALID if token.valid(now) else Standing.EXPIRED
    overlapping = token.old_until is not None and now < token.old_until and standing is Standing.VALID
    return TokenView(
        id=token.id,
        name=token.name,
        scopes=[Scope(scope) for scope in token.scopes],
        job=token.job,
        standing=standing,
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        old_secret_until=token.old_until if overlapping else None,
        last_used_at=token.last_used_at,
    )
