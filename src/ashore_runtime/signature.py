"""Ed25519 (RFC 8032) in plain integers: is this manifest from somebody we trust?

Verifying touches public numbers only, so that its time tells nothing. Signing is here for completeness and for tests:
it is not constant in time, and a key that matters is better used in a tool made for keys.
"""

import hashlib
from dataclasses import dataclass

from ashore_runtime.refusal import Refused

KEY_BYTES = 32
SIGNATURE_BYTES = 64

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)
_SIGN = 1 << 255

_Point = tuple[int, int, int, int]
"""Extended coordinates (X, Y, Z, T): x = X / Z, y = Y / Z, x y = T / Z."""


@dataclass(frozen=True)
class TrustedKey:
    """A public key whose signatures are believed."""

    public: bytes
    """32 bytes."""
    not_after: float | None = None
    """Unix time after which it is no longer believed; None never ends."""


def check(blob: bytes, message: bytes, trusted: tuple[TrustedKey, ...], now: float) -> None:
    """Refuse a signature file (public key, then signature) that does not fit, or whose key is not trusted.

    Without trusted keys the signature must still fit: a damaged one is refused even where none is asked for.
    """
    if len(blob) != KEY_BYTES + SIGNATURE_BYTES:
        raise Refused(f"The signature is {len(blob)} bytes long instead of {KEY_BYTES + SIGNATURE_BYTES}.")
    public, signature = blob[:KEY_BYTES], blob[KEY_BYTES:]
    if trusted:
        known = [key for key in trusted if key.public == public]
        if not known:
            raise Refused(f"The bundle is signed with the key {public.hex()[:16]}..., which is not trusted.")
        if all(key.not_after is not None and key.not_after < now for key in known):
            raise Refused(f"The bundle is signed with the key {public.hex()[:16]}..., which has expired.")
    if not verify(public, message, signature):
        raise Refused("The signature does not belong to this manifest.")


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is the key's signature of `message`."""
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    key, commitment = _decompress(public), _decompress(signature[:KEY_BYTES])
    scalar = int.from_bytes(signature[KEY_BYTES:], "little")
    if key is None or commitment is None or scalar >= _ORDER:
        return False
    challenge = _hash(signature[:KEY_BYTES], public, message)
    return _equal(_multiply(scalar, _BASE), _add(commitment, _multiply(challenge, key)))


def public_key(secret: bytes) -> bytes:
    """The public key of a 32-byte secret."""
    return _compress(_multiply(_expand(secret)[0], _BASE))


def sign(secret: bytes, message: bytes) -> bytes:
    """A signature file for `message`: the public key, then the signature."""
    scalar, prefix = _expand(secret)
    public = public_key(secret)
    nonce = _hash(prefix, message)
    commitment = _compress(_multiply(nonce, _BASE))
    answer = (nonce + _hash(commitment, public, message) * scalar) % _ORDER
    return public + commitment + answer.to_bytes(KEY_BYTES, "little")


def _expand(secret: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:KEY_BYTES], "little")
    # RFC 8032, 5.1.5: clear the three lowest bits and the highest, set the second highest.
    return scalar & ((1 << 254) - 8) | (1 << 254), digest[KEY_BYTES:]


def _hash(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % _ORDER


def _add(a: _Point, b: _Point) -> _Point:
    # The complete addition of RFC 8032, 5.1.4; it also doubles.
    e = (a[1] - a[0]) * (b[1] - b[0]) % _P
    f = (a[1] + a[0]) * (b[1] + b[0]) % _P
    g = 2 * a[3] * b[3] * _D % _P
    h = 2 * a[2] * b[2] % _P
    left, middle, right, top = f - e, h - g, h + g, f + e
    return left * middle % _P, right * top % _P, middle * right % _P, left * top % _P


def _multiply(scalar: int, point: _Point) -> _Point:
    result: _Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    return result


def _equal(a: _Point, b: _Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % _P == 0 and (a[1] * b[2] - b[1] * a[2]) % _P == 0


def _compress(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (_SIGN if x & 1 else 0)).to_bytes(KEY_BYTES, "little")


def _decompress(data: bytes) -> _Point | None:
    number = int.from_bytes(data, "little")
    odd, y = bool(number & _SIGN), number & (_SIGN - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    # A square root modulo p = 5 (mod 8), RFC 8032, 5.1.3.
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (x == 0 and odd):
        return None
    if bool(x & 1) != odd:
        x = _P - x
    return x, y, 1, x * y % _P


def _base_point() -> _Point:
    point = _decompress((4 * pow(5, -1, _P) % _P).to_bytes(KEY_BYTES, "little"))
    assert point is not None
    return point


_BASE = _base_point()
