"""Slurm through slurmrestd. No slurmrestd that is new enough can run here (Debian has 22.05, which cannot change a
node), so the interface as Slurm published it (tests/data/slurmrestd) is the witness: what is sent and what is read is
held to it, version by version, over real sockets. tests/e2e has the old one, which must be told apart.
"""

from __future__ import annotations

import msgspec
import pytest
from fake_slurmrestd import AT, PUBLISHED, VERSIONS
from slurmrest_world import REASON, TOKEN, client, errors, failing, server, token

from ibmon.configfile import loads
from ibmon.configkeys import REST_VERSIONS
from ibmon.drain import policy, slurmrest_answer
from ibmon.drain.slurm import Slurm
from ibmon.drain.slurm_node import NodeNameError
from ibmon.drain.slurmrest import SlurmRest
from ibmon.runtime.schedulers import configured

__all__ = ["server", "token"]  # fixtures

ORDERS = {"UNDRAIN", "RESUME"}  # words that a change may hold and no node shows


@pytest.fixture(params=VERSIONS)
def version(request, server):
    server.versions = (request.param,)
    return request.param


# ------------------------------------------------------------------------------------------------------ reading


def test_state_reason_user_and_time_are_read_from_each_version(server, version):
    server.add("node1", "IDLE", "DRAIN", reason=REASON, by="root", at=AT)
    view = client(server).read_node()
    assert (view.name, view.flags) == ("node1", {"IDLE", "DRAIN"})
    assert (view.reason, view.user, view.since) == (REASON, "root", float(AT))
    assert view.drained
    assert server.calls() == ["/openapi/v3", f"/slurm/{version}/node/node1"]


def test_a_node_without_a_reason_has_none(server, version):
    view = client(server).read_node()
    assert (view.flags, view.reason, view.user, view.since) == ({"IDLE"}, None, None, None)


@pytest.mark.parametrize(
    ("at", "since"),
    [
        (AT, float(AT)),
        (0, None),
        ({"set": True, "infinite": False, "number": AT}, float(AT)),
        ({"set": False, "infinite": False, "number": AT}, None),
        ({"set": True, "infinite": True, "number": AT}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_time_that_is_not_set_is_none(at, since):
    (node,) = slurmrest_answer.parse_nodes(_nodes(name="node1", state=["IDLE"], reason="x", reason_changed_at=at))
    assert slurmrest_answer.record(node).view.since == since


def _nodes(**node):
    return msgspec.json.encode({"nodes": [node]})


@pytest.mark.parametrize("word", sorted({w for p in PUBLISHED.values() for w in p["$defs"]["states"]["items"]["enum"]}))
def test_every_published_state_has_a_rule_of_its_own(word):
    (node,) = slurmrest_answer.parse_nodes(_nodes(name="node1", state=[word]))
    (flag,) = slurmrest_answer.record(node).view.flags
    assert (flag in policy.STATES) == (word not in ORDERS)


def test_a_reason_of_several_lines_is_one_line():
    (node,) = slurmrest_answer.parse_nodes(_nodes(name="node1", state=["IDLE"], reason=f"{REASON}\nsee ticket "))
    assert slurmrest_answer.record(node).view.reason == f"{REASON} see ticket"


def test_pools_are_all_partitions_with_all_their_nodes(server, version):
    server.add("node1", "IDLE", "DRAIN", partitions=("all", "gpu"), reason=REASON)
    server.add("node2", partitions=("all", "gpu"))
    server.add("node3", "MIXED")
    server.add("spare", partitions=())
    pools = client(server).read_pools()
    names = {pool.name: [view.name for view in pool.nodes] for pool in pools}
    assert names == {"all": ["node1", "node2", "node3"], "gpu": ["node1", "node2"]}
    assert pools[1].nodes[0].reason == REASON


def test_the_fleet_is_read_in_one_call_by_whoever_asks(server):
    away = client(server, name="")
    assert [[view.name for view in pool.nodes] for pool in away.read_fleet()] == [["node1"]]
    assert server.calls() == ["/openapi/v3", f"/slurm/{VERSIONS[-1]}/nodes/"]


def test_pools_without_this_node_are_an_error(server):
    assert "node2 is not there" in str(failing(client(server, name="node2").read_pools))


def test_no_version_tells_of_switches_and_so_none_is_asked(server):
    assert client(server).read_topology() == {}
    assert server.log == []


# ------------------------------------------------------------------------------------------------------ writing


def test_drain_and_undrain_are_the_only_writes_and_have_the_published_form(server, version):
    slurm = client(server)
    slurm.drain(REASON)
    assert slurm.read_node().flags == {"IDLE", "DRAIN"}
    assert slurm.read_node().reason == REASON
    slurm.undrain()
    assert slurm.read_node().flags == {"IDLE"}
    assert server.bodies() == [{"state": ["DRAIN"], "reason": REASON}, {"state": ["UNDRAIN"]}]
    assert set(server.calls("POST")) == {f"/slurm/{version}/node/node1"}


# ------------------------------------------------------------------------------------------------------ version


def test_the_versions_of_the_configuration_are_the_published_ones():
    assert REST_VERSIONS == VERSIONS


@pytest.mark.parametrize(
    ("offers", "spoken"),
    [
        (VERSIONS, "v0.0.42"),
        (("v0.0.38", "v0.0.39"), "v0.0.39"),
        (("v0.0.40", "v0.0.39"), "v0.0.40"),
        (("v0.0.41", "v0.0.42", "v0.0.43"), "v0.0.42"),
    ],
)
def test_the_newest_version_that_both_sides_know_is_spoken_and_asked_for_once(server, offers, spoken):
    server.versions = offers
    slurm = client(server)
    slurm.read_node()
    slurm.read_node()
    assert server.calls() == ["/openapi/v3", *[f"/slurm/{spoken}/node/node1"] * 2]


@pytest.mark.parametrize(
    ("offers", "line"),
    [
        (("v0.0.38",), "offers v0.0.38; ibmon needs v0.0.39 (Slurm 23.02) or later, or leave slurm.rest_url empty"),
        (
            ("v0.0.37", "v0.0.9"),
            "offers v0.0.37; ibmon needs v0.0.39 (Slurm 23.02) or later, or leave slurm.rest_url empty",
        ),
        ((), "offers nothing of Slurm; ibmon needs v0.0.39 (Slurm 23.02) or later, or leave slurm.rest_url empty"),
        (
            ("v0.0.143", "v0.0.144"),
            "offers v0.0.143 and later; ibmon speaks v0.0.39 to v0.0.42: leave slurm.rest_url empty",
        ),
    ],
)
def test_without_a_common_version_one_line_says_what_to_do(server, offers, line):
    server.versions = offers
    assert str(failing(client(server).read_node)) == f"slurmrestd at {server.url} {line}"


def test_a_version_that_is_configured_is_spoken_without_asking(server):
    client(server, rest_version="v0.0.40").read_node()
    assert server.calls() == ["/slurm/v0.0.40/node/node1"]


def test_a_configured_version_that_is_not_there_says_which_key(server):
    server.versions = ("v0.0.42",)
    slurm = client(server, rest_version="v0.0.39")
    for _ in range(2):
        assert "does not know v0.0.39 (404): set slurm.rest_version" in str(failing(slurm.read_node))


def test_after_an_update_of_slurm_the_version_is_asked_for_anew(server):
    server.versions = ("v0.0.39", "v0.0.40")
    slurm = client(server)
    slurm.read_node()
    server.versions = ("v0.0.41", "v0.0.42")
    assert "does not know v0.0.40 (404)" in str(failing(slurm.read_node))
    assert slurm.read_node().name == "node1"
    assert server.calls()[-1] == "/slurm/v0.0.42/node/node1"


# ------------------------------------------------------------------------------------------------------ who asks


def test_user_and_token_are_sent_and_a_replaced_token_is_used_at_once(server, token):
    server.token, server.user = TOKEN, "ibmon"
    slurm = client(server, rest_token_file=str(token), rest_user="ibmon")
    slurm.drain(REASON)
    server.token = "new.token"
    token.write_text("SLURM_JWT=new.token\n")
    slurm.undrain()
    assert [headers["X-SLURM-USER-TOKEN"] for _, _, headers, _ in server.log] == [TOKEN, TOKEN, "new.token"]
    assert TOKEN not in repr(slurm)
    assert TOKEN not in str(server.calls())


def test_without_a_user_no_user_is_named(server, token):
    client(server, rest_token_file=str(token)).read_node()
    assert all("X-SLURM-USER-NAME" not in headers for _, _, headers, _ in server.log)


def test_an_expired_token_is_a_refusal_that_names_the_file(server, token):
    server.token, server.user = "another", "ibmon"
    error = failing(client(server, rest_token_file=str(token), rest_user="ibmon").read_node)
    assert error.forbidden
    assert str(error) == (
        f"slurmrestd at {server.url}: it does not accept ibmon: "
        f"the token in {token} is expired, or not of this cluster or user"
    )


@pytest.mark.parametrize("said", ["Protocol authentication error", "Authentication credential expired"])
def test_an_expired_token_that_slurmctld_refuses_is_a_refusal_too(server, token, said):
    server.fail("status", status=500, body=errors(said), path="/node/")
    error = failing(client(server, rest_token_file=str(token)).read_node)
    assert error.forbidden
    assert f"the token in {token} is expired" in str(error)
    assert said in str(error)


def test_a_user_without_the_right_is_told_which_right_it_takes(server, token):
    server.forbidden = True
    slurm = client(server, rest_token_file=str(token), rest_user="ibmon")
    error = failing(lambda: slurm.drain(REASON))
    assert error.forbidden
    assert str(error) == (
        f"slurmrestd at {server.url}: Slurm forbids ibmon to change the node node1: it takes root, SlurmUser, or a "
        "user with the admin level administrator (Failure to update node node1: Invalid user id)"
    )
    assert "DRAIN" not in server.nodes["node1"]["state"]


@pytest.mark.parametrize(("status", "body"), [(403, b""), (403, b"<html>"), (200, errors("Access/permission denied"))])
def test_a_refusal_by_permission_is_known_by_status_or_words(server, status, body):
    server.fail("status", status=status, body=body, path="/node/")
    assert failing(client(server).read_node).forbidden


@pytest.mark.parametrize("content", ["", "\n", "two words", "tok\xe9n", "a\nb", "\x00"])
def test_a_file_that_holds_no_token_is_said_without_what_it_holds(server, token, content):
    token.write_text(content, encoding="latin-1")
    error = failing(client(server, rest_token_file=str(token)).read_node)
    assert f"slurm.rest_token_file {token} holds no token" in str(error)
    assert server.log == []


def test_a_token_file_that_is_missing_is_said(server, tmp_path):
    error = failing(client(server, rest_token_file=str(tmp_path / "none")).read_node)
    assert "no such file or directory" in str(error)


# --------------------------------------------------------------------------------------------------- node name


def test_the_configured_name_is_taken_and_then_that_of_slurmd(server):
    assert client(server, name="gpu7", environ={"SLURMD_NODENAME": "other"}).node_name == "gpu7"
    assert client(server, name="", environ={"SLURMD_NODENAME": "gpu8"}).node_name == "gpu8"
    assert server.log == []


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"host-a": "elsewhere"}, "host-a"),
        ({"node9": "host-a", "node8": "host-b"}, "node9"),
        ({"node9": "host-a.example.org"}, "node9"),
    ],
)
def test_else_slurm_is_asked_once_for_the_short_and_then_the_full_host_name(server, names, found):
    for name, host in names.items():
        server.add(name, hostname=host)
    slurm = client(server, name="")
    assert slurm.read_node().name == found
    asked = len(server.log)
    assert slurm.node_name == found
    assert len(server.log) == asked


@pytest.mark.parametrize("hosts", [(), ("host-a", "host-a")])
def test_no_name_and_two_names_turn_actions_off(server, hosts):
    for number, host in enumerate(hosts):
        server.add(f"gpu{number}", hostname=host)
    with pytest.raises(NodeNameError, match=r"set slurm\.node_name"):
        client(server, name="").drain(REASON)
    assert server.bodies() == []


@pytest.mark.parametrize("name", ["node[1-4]", "node1,node2", "../jobs", "node1?x=1", "a b"])
def test_a_name_that_could_mean_anything_else_is_refused(server, name):
    with pytest.raises(NodeNameError):
        client(server, name=name).drain(REASON)
    assert server.log == []


# ----------------------------------------------------------------------------------------------- configuration


def test_the_address_of_slurmrestd_chooses_this_way():
    text = '[action]\nscheduler = "slurm"\n'
    way = '[slurm]\nrest_url = "unix:/run/slurmrestd.socket"\n'
    assert isinstance(configured(loads(text).config, "node1"), Slurm)
    assert isinstance(configured(loads(text + way).config, "node1"), SlurmRest)
