"""Whose field is whose on a server that several namespaces share."""

from __future__ import annotations

from probes.postgres.sharing import Scope, is_ours, of_instance
from sandbox.model import Isolation, NamespaceId
from sandbox.ports import Part, Sharing
from sandbox.resources.postgres.access import verifier

A, B, C = "ns_aaaaaaaaaaaa", "ns_bbbbbbbbbbbb", "ns_cccccccccccc"
FOUND = {
    "roles/agent": "plain",
    f"roles/{A}": f"own {A}",
    f"roles/{B}": "another's",
    f"members/{B}/{A} granted by postgres": "both",
    f"members/{B}/{C} granted by postgres": "two others",
    f"sessions/{A}/{A}/client backend": "1",
    f"sessions/{B}/{B}/client backend": "1",
    "sessions/postgres/postgres/client backend": "1",
    "prepared transactions/eve": "x",
    "data directory base": f"postgres\n{A}\n{B}\n16450",
    "shared dependencies/*/pg_auth_members/role agent/a": "3",
    "roles/ns_dddddddddddd": "nobody's",
}


def scope(own: str | None) -> Scope:
    part = None if own is None else Part(isolation=Isolation.DATABASE, namespace=NamespaceId("n"), name=own, secret="")
    return Scope.of(Sharing(own=part, names={A, B}), {C})


def test_a_namespace_reads_its_own_and_what_nobody_may_change() -> None:
    fields = scope(A).fields(FOUND)

    assert fields == {
        "roles/agent": "plain",
        "roles/(own)": "own (own)",
        "members/(other)/(own) granted by postgres": "both",
        "sessions/(own)/(own)/client backend": "1",
        "roles/ns_dddddddddddd": "nobody's",
    }
    assert {name for name in fields if of_instance(name)} == {
        "roles/agent",
        "members/(other)/(own) granted by postgres",
        "roles/ns_dddddddddddd",
    }


def test_the_whole_is_read_without_the_parts_but_with_what_ties_them_together() -> None:
    assert scope(None).fields(FOUND) == {
        "roles/agent": "plain",
        "members/(part)/(part) granted by postgres": "two others",
        "sessions/postgres/postgres/client backend": "1",
        "prepared transactions/eve": "x",
        "data directory base": "postgres\n16450",
        "roles/ns_dddddddddddd": "nobody's",
    }


def test_a_name_inside_another_is_not_that_name() -> None:
    assert scope(A).fields({f"databases/{B}x": "1", f"databases/x_{B}": "2"}) == {f"databases/{B}x": "1", f"databases/x_{B}": "2"}


def test_what_a_holder_chose_to_call_like_a_neighbour_says_nothing_of_the_neighbour() -> None:
    """Names of parts can be read in the server's catalogues, and given to transactions and sessions."""
    found = {
        f"prepared transactions/{B}": f"{A} {A}",
        f"sessions/{A}/{A}/client backend {B} idle": "1",
        f"sessions/{A}/{A}/client backend a/{B} idle": "1",
    }
    bystander = Part(isolation=Isolation.DATABASE, namespace=NamespaceId("n"), name=B, secret="")

    assert Scope.of(Sharing(own=bystander, names={A, B}), ()).fields(found) == {}
    own = scope(A).fields(found)
    assert set(own) == {f"sessions/(own)/(own)/client backend {B} idle", f"sessions/(own)/(own)/client backend a/{B} idle"}
    assert not any(of_instance(name) for name in own)
    assert set(scope(None).fields(found)) == {f"prepared transactions/{B}"}


def test_the_password_of_this_generation_is_known_by_its_verifier() -> None:
    assert is_ours(verifier("secret"), "secret")
    assert not is_ours(verifier("secret"), "another")
    assert not is_ours("md5abc", "secret")
    assert not is_ours(None, "secret")
