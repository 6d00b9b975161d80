"""`git`: every helper, against a bare repository inside the sandbox and against servers that refuse."""

import pytest
from e2b import CommandExitException, GitAuthException, GitUpstreamException, InvalidArgumentException

ME = {"author_name": "Me", "author_email": "me@example.org"}


@pytest.fixture
def place(box, request):
    path = f"/home/user/git-{abs(hash(request.node.name)) % 10**8}"
    box.files.make_dir(path)
    yield path
    box.files.remove(path)


@pytest.fixture
def repository(box, place):
    """A repository with one commit, and a bare `origin` that it has been pushed to."""
    box.git.init(f"{place}/origin.git", bare=True, initial_branch="main")
    path = f"{place}/work"
    box.git.init(path, initial_branch="main")
    box.files.write(f"{path}/README", "first\n")
    box.git.add(path)
    box.git.commit(path, "first", **ME)
    box.git.remote_add(path, "origin", f"{place}/origin.git")
    box.git.push(path, remote="origin", branch="main")
    return path


def log(box, path):
    return box.commands.run(f"git -C {path} log --format=%s").stdout.split()


def test_status(box, repository):
    status = box.git.status(repository)
    assert (status.current_branch, status.upstream, status.is_clean) == ("main", "origin/main", True)
    assert (status.ahead, status.behind, status.detached) == (0, 0, False)
    box.files.write(f"{repository}/README", "changed\n")
    box.files.write(f"{repository}/new ü.txt", "new\n")
    box.files.write(f"{repository}/staged", "staged\n")
    box.git.add(repository, files=["staged"])
    status = box.git.status(repository)
    assert {f.name.strip('"'): f.status for f in status.file_status if f.name.isascii()}["README"] == "modified"
    assert (status.has_staged, status.has_untracked, status.total_count, status.staged_count) == (True, True, 3, 1)
    box.git.commit(repository, "second", **ME)
    assert box.git.status(repository).ahead == 1


def test_branches(box, repository):
    box.git.create_branch(repository, "topic")
    branches = box.git.branches(repository)
    assert (sorted(branches.branches), branches.current_branch) == (["main", "topic"], "topic")
    box.git.checkout_branch(repository, "main")
    box.git.delete_branch(repository, "topic")
    assert box.git.branches(repository).branches == ["main"]
    box.git.create_branch(repository, "unmerged")
    box.git.commit(repository, "only here", allow_empty=True, **ME)
    box.git.checkout_branch(repository, "main")
    with pytest.raises(CommandExitException):
        box.git.delete_branch(repository, "unmerged")
    box.git.delete_branch(repository, "unmerged", force=True)
    with pytest.raises(CommandExitException):
        box.git.checkout_branch(repository, "nowhere")


def test_commits(box, repository):
    box.git.commit(repository, "empty 'quoted' \"twice\"", allow_empty=True, **ME)
    said = box.commands.run(f"git -C {repository} log -1 --format='%s|%an|%ae'").stdout
    assert said == "empty 'quoted' \"twice\"|Me|me@example.org\n"
    with pytest.raises(CommandExitException):
        box.git.commit(repository, "nothing to say", **ME)


def test_reset_and_restore(box, repository):
    box.files.write(f"{repository}/README", "second\n")
    box.git.add(repository)
    box.git.restore(repository, ["README"], staged=True)
    assert not box.git.status(repository).has_staged
    box.git.restore(repository, ["README"])
    assert box.files.read(f"{repository}/README") == "first\n"
    box.files.write(f"{repository}/README", "second\n")
    box.git.add(repository)
    box.git.reset(repository, paths=["README"])
    assert box.git.status(repository).staged_count == 0
    box.git.add(repository)
    box.git.commit(repository, "second", **ME)
    box.git.reset(repository, mode="hard", target="HEAD~1")
    assert (box.files.read(f"{repository}/README"), log(box, repository)) == ("first\n", ["first"])


def test_clone_push_and_pull(box, repository, place):
    other = f"{place}/other"
    box.git.clone(f"file://{place}/origin.git", other, branch="main", depth=1)
    assert box.files.read(f"{other}/README") == "first\n"
    box.files.write(f"{other}/README", "from the other\n")
    box.git.add(other)
    box.git.commit(other, "other", **ME)
    box.git.push(other)
    box.git.pull(repository)
    assert (box.files.read(f"{repository}/README"), log(box, repository)) == ("from the other\n", ["other", "first"])
    with pytest.raises(CommandExitException):
        box.git.clone(f"{place}/nothing.git", f"{place}/x")


def test_remotes(box, repository, place):
    assert box.git.remote_get(repository, "origin") == f"{place}/origin.git"
    assert box.git.remote_get(repository, "none") is None
    with pytest.raises(CommandExitException):
        box.git.remote_add(repository, "origin", "elsewhere")
    box.git.remote_add(repository, "origin", f"{place}/origin.git", fetch=True, overwrite=True)
    box.git.remote_add(repository, "second", "https://example.org/x.git")
    assert box.git.remote_get(repository, "second") == "https://example.org/x.git"


def test_missing_upstream(box, repository):
    box.git.create_branch(repository, "lonely")
    with pytest.raises(GitUpstreamException):
        box.git.push(repository, set_upstream=False)
    with pytest.raises(GitUpstreamException):
        box.git.pull(repository)


def test_configuration(box, repository):
    box.git.set_config("sandcove.test", "a b", scope="local", path=repository)
    assert box.git.get_config("sandcove.test", scope="local", path=repository) == "a b"
    assert box.git.get_config("sandcove.none") is None
    box.git.configure_user("Someone Else", "else@example.org")
    assert box.git.get_config("user.name") == "Someone Else"
    assert box.git.get_config("user.email") == "else@example.org"
    box.git.commit(repository, "by config", allow_empty=True)
    assert "Someone Else" in box.commands.run(f"git -C {repository} log -1 --format=%an").stdout
    for call in [
        lambda: box.git.set_config("", "x"),
        lambda: box.git.get_config("x", scope="local"),
        lambda: box.git.configure_user("", ""),
        lambda: box.git.dangerously_authenticate("", ""),
        lambda: box.git.clone("https://example.org/x.git", password="secret"),
        lambda: box.git.push(repository, password="secret"),
        lambda: box.git.pull(repository, password="secret"),
    ]:
        with pytest.raises(InvalidArgumentException):
            call()


REFUSING_SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Refuse(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401); self.send_header("WWW-Authenticate", "Basic"); self.end_headers()
HTTPServer(("127.0.0.1", 8401), Refuse).serve_forever()
"""


def test_authentication(box, repository, place):
    box.files.write("/tmp/refuse.py", REFUSING_SERVER)
    server = box.commands.run("python3 /tmp/refuse.py", background=True, timeout=0)
    box.commands.run("until ss -ltn | grep -q :8401; do sleep 0.05; done")
    url = "http://127.0.0.1:8401/private.git"
    with pytest.raises(GitAuthException):
        box.git.clone(url, f"{place}/private")
    with pytest.raises(GitAuthException):
        box.git.clone(url, f"{place}/private", username="me", password="wrong")
    box.git.remote_add(repository, "private", url)
    with pytest.raises((GitAuthException, CommandExitException)):
        box.git.push(repository, remote="private", branch="main", username="me", password="wrong")
    assert box.git.remote_get(repository, "private") == url  # the password does not stay
    server.kill()
    box.git.dangerously_authenticate("me", "token", host="example.org")
    assert "https://me:token@example.org" in box.files.read("/home/user/.git-credentials")
    box.files.remove("/home/user/.git-credentials")
