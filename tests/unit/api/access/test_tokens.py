"""What a token looks like, and that nothing but itself fits it."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.access import tokens


def test_a_token_has_its_prefix_an_id_and_32_bytes_in_base_62() -> None:
    token = tokens.minted()
    prefix, id, secret = token.text.split("_")
    assert (prefix, id, secret) == ("ttb", token.id, token.secret)
    assert (len(id), len(secret)) == (8, 43)
    assert (id + secret).isalnum()
    assert tokens.parsed(token.text) == token


def test_a_secret_spells_a_number_below_two_to_the_256() -> None:
    secrets = [tokens.new_secret() for _ in range(200)]
    numbers = []
    for secret in secrets:
        number = 0
        for character in secret:
            number = number * 62 + tokens.ALPHABET.index(character)
        numbers.append(number)
    assert len(set(secrets)) == 200
    assert max(numbers) < 2**256
    assert max(numbers) > 2**250


def test_a_new_secret_may_keep_the_id() -> None:
    token = tokens.minted()
    other = tokens.minted(token.id)
    assert other.id == token.id
    assert other.secret != token.secret


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ttb_",
        "ttb_Ab12Cd34",
        "ttb_Ab12Cd34_" + "a" * 42,
        "ttb_Ab12Cd34_" + "a" * 44,
        "ttb_Ab12Cd3_" + "a" * 43,
        "ttb_Ab12Cd34_" + "a" * 42 + "-",
        "ttb_Ab12Cd34_" + "a" * 42 + "ä",
        "xtb_Ab12Cd34_" + "a" * 43,
        " ttb_Ab12Cd34_" + "a" * 43,
        "ttb_Ab12Cd34_" + "a" * 43 + "\n",
    ],
)
def test_what_is_no_token_is_none(text: str) -> None:
    assert tokens.parsed(text) is None


def test_what_is_stored_is_the_sha_256_of_the_secret_and_only_it_fits() -> None:
    token = tokens.minted()
    assert token.digest == hashlib.sha256(token.secret.encode()).hexdigest()
    assert tokens.fits(token.digest, token.secret)
    assert not tokens.fits(token.digest, token.secret[:-1] + ("a" if token.secret[-1] != "a" else "b"))


@given(st.text(max_size=60))
def test_any_text_may_be_held_against_a_secret(text: str) -> None:
    assert not tokens.fits(tokens.digest("x" * 43), text)


def test_a_token_does_not_tell_its_secret_by_accident() -> None:
    token = tokens.minted()
    assert token.secret not in f"{token} {token!r} {[token]}"
