"""`--require-signature KEYFILE`: only a bundle of somebody we trust is inspected or deployed."""

import datetime
import shutil
from pathlib import Path

import pytest

from ashore.cli import deploy, inspect_bundle
from ashore.cli.main import main
from ashore.cli.options import UsageError
from ashore_runtime import bundle, signature
from experiments import supervised_toy_world
from runtime import small_bundle

SECRET = bytes(range(32))
PUBLIC = signature.public_key(SECRET).hex()
OTHER = signature.public_key(bytes(32)).hex()
TODAY = datetime.datetime.now(datetime.UTC).date()
YESTERDAY, TOMORROW = (TODAY + datetime.timedelta(days=days) for days in (-1, 1))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three bundles; the third has the signature of another."""
    folder = tmp_path_factory.mktemp("bundles")
    small_bundle.write(folder / "unsigned")
    small_bundle.write(folder / "signed", secret_key=SECRET)
    small_bundle.write(folder / "forged", seed=1)
    shutil.copy(folder / "signed" / bundle.SIGNATURE, folder / "forged")
    return folder


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "trusted.keys"


VERBS = {
    "inspect": ["inspect"],
    "deploy": ["deploy", "--episodes", "1", "--env", f"{supervised_toy_world.__name__}:Toy-v0"],
    "supervised": ["deploy", "--supervised", "--env", f"{supervised_toy_world.__name__}:Toy-v0"],
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("name", "keys", "refusal"),
    [
        ("unsigned", PUBLIC, "unsigned is not signed."),
        ("signed", OTHER, f"is signed with the key {PUBLIC[:16]}..., which is not trusted."),
        ("forged", PUBLIC, "The signature does not belong to this manifest."),
        ("signed", f"{PUBLIC} {YESTERDAY}", f"is signed with the key {PUBLIC[:16]}..., which has expired."),
        ("signed", "# Nobody.\n", "holds no public key."),
        ("signed", f"{PUBLIC}\n{PUBLIC[:-2]}", "Line 2 of "),
        ("signed", None, "cannot be read: No such file or directory."),
    ],
    ids=["unsigned", "unknown key", "wrong signature", "expired", "no key", "half a key", "no file"],
)
def test_it_is_refused_in_one_sentence(bundles, key_file, tmp_path, capsys, verb, name, keys, refusal):
    if keys is not None:
        key_file.write_text(keys)
    words = [*VERBS[verb], str(bundles / name), "--require-signature", str(key_file)]
    out = tmp_path / "out"
    assert main(words if verb == "inspect" else [*words, "--out", str(out)]) == 2
    shown = capsys.readouterr()
    assert refusal in shown.err and shown.err.count("\n") == 1 and not shown.out
    assert not out.exists()


@pytest.mark.parametrize(
    "keys",
    [PUBLIC, f"# Ours, and an old one of theirs.\n{OTHER} 2020-01-01\n\n{PUBLIC.upper()} {TOMORROW}  # Until then."],
    ids=["one key", "several"],
)
def test_who_is_trusted_is_deployed(bundles, key_file, tmp_path, capsys, keys):
    key_file.write_text(keys)
    trusted = [str(bundles / "signed"), "--require-signature", str(key_file)]
    assert main([*VERBS["inspect"], *trusted]) == 0
    assert main([*VERBS["deploy"], *trusted, "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "summary.json").is_file()


def test_a_key_is_believed_to_the_end_of_its_last_day(key_file):
    key_file.write_text(f"{PUBLIC} 2027-12-31\n{PUBLIC} 9999-12-31\n{PUBLIC}")
    first, last, endless = inspect_bundle.trusted_keys(key_file)
    newyear = datetime.datetime(2028, 1, 1, tzinfo=datetime.UTC).timestamp()
    assert first.not_after is not None and newyear - 1e-3 < first.not_after < newyear
    assert last.not_after is not None and endless.not_after is None


@pytest.mark.parametrize("line", [f"{PUBLIC} tomorrow", f"{PUBLIC} 2027-12-31 12:00", f"{PUBLIC[:-1]}", "no key"])
def test_a_line_that_is_no_key_is_never_left_out(key_file, line):
    key_file.write_text(f"{OTHER}\n{line}\n")
    with pytest.raises(UsageError, match=r"^Line 2 of .* is not a public key"):
        inspect_bundle.trusted_keys(key_file)
    key_file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"cannot be read: it is not text\.$"):
        inspect_bundle.trusted_keys(key_file)


def test_a_bundle_that_is_exchanged_after_its_check_is_refused(bundles, key_file, tmp_path, monkeypatch, capsys):
    key_file.write_text(PUBLIC)
    target = tmp_path / "policy"
    shutil.copytree(bundles / "signed", target)
    usual = deploy.deployment.load_runtime

    def exchanged(*arguments):
        shutil.rmtree(target)
        small_bundle.write(target, seed=1)
        return usual(*arguments)

    monkeypatch.setattr(deploy.deployment, "load_runtime", exchanged)
    words = [*VERBS["deploy"], str(target), "--require-signature", str(key_file), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "was changed after its signature was checked." in capsys.readouterr().err


def test_the_policys_process_asks_for_the_same_signature(key_file):
    options = deploy.Options(Path("b"), supervised=True, require_signature=key_file)
    assert deploy._once_more(options)[-2:] == ["--require-signature", str(key_file)]
