"""From a check that failed to what was done on a page: recorded, done again, and kept as steps of the environment's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs import browser, check
from envs.bisect import bisect, history
from envs.environment import LoadedEnvironment, load
from rollout.tools.browser import Click, Fill, Goto, Look
from sandbox import Pool
from sandbox.model import PageAction, PageDo, VerdictStatus
from sandbox.service import Server
from sandbox.settings import Settings
from sandbox.wiring import machinery, open_pool

pytestmark = [pytest.mark.namespaces, pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]
# Its buttons are two things that a person does: one that leaves nothing, one that leaves a cookie.
SITE = """
import http.server, socketserver, sys
PAGE = b'''<!doctype html><title>desk</title><p id=said>nothing</p><form onsubmit="return false"><input name=q></form>
<button onclick="said.textContent = 'saved ' + document.forms[0].q.value">Save</button>
<button onclick="document.cookie = 'remember=' + (document.forms[0].q.value || 'nobody') + '; max-age=9999'">Remember me</button>'''
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)
    def address_string(self): return "client"
    def log_message(self, *words): pass
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): daemon_threads = True
Server(sys.argv[1], Handler).serve_forever()
"""
DESK = """
name = "desk"
version = "1"
[limits]
memory_mb = 2048
cpus = 2.0
pids = 512
[check]
probe_limit_s = 120.0
[reset]
method = "hook"
hook_script = "reset.sh"
[resources.app]
kind = "service"
argv = ["/usr/bin/python3", "-I", "/app/server.py", "{socket}"]
app = "app"
[resources.web]
kind = "browser"
sites = { "desk.test" = "app" }
# What a hook that does nothing leaves of any visit is not what is looked for here.
[[volatile]]
pattern = "web/history*"
reason = "a visit is no leak in this test"
[[tasks]]
id = "buy"
prompt = "Buy tea."
[tasks.success]
kind = "browser"
resource = "web"
origin = "http://desk.test"
claims = [{ name = "bought", path = ["local_storage", "bought"], items = ["tea"] }]
"""
AT = "http://desk.test/"


@pytest.fixture
def desk(passable_dir: Path) -> LoadedEnvironment:
    base = passable_dir / "desk"
    (base / "app").mkdir(parents=True)
    (base / "app" / "server.py").write_text(SITE)
    (base / "reset.sh").write_text("#!/bin/sh\ntrue\n")
    (base / "environment.toml").write_text(DESK)
    return load(base)


async def test_the_click_that_left_a_cookie_is_named_and_becomes_steps(
    desk: LoadedEnvironment, settings: Settings, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "SETTLED_S", 1.0)  # a cookie is seen at once
    async with open_pool([desk], size=1, settings=settings) as pool:
        async with pool.session("desk", trajectory="t1", wait=300, ttl=600) as session:
            await Goto().act(session, {"url": AT})
            await Fill().act(session, {"selector": "input", "text": "tea"})
            assert "saved tea" in (await Click().act(session, {"selector": "text=Save"})).text
        await pool.cleared(["t1"], timeout=300)
        async with pool.session("desk", task="buy", trajectory="t2", wait=300, ttl=600) as session:
            await Goto().act(session, {"url": AT})
            assert (await Look().act(session, {})).ok
            assert not (await Goto().act(session, {"url": "http://nowhere.test/"})).ok
            await Goto().act(session, {"url": AT})
            await Fill().act(session, {"selector": "input", "text": "it's me"})
            assert (await session.score()).reward == 0.0
            await Click().act(session, {"selector": "text=Remember me"})
        await pool.cleared(["t2"], timeout=300)
        why = await pool.why("t2")
    name = why["window"]["quarantine"]

    written = desk.base / "environment.toml"
    async with machinery(settings) as (runtime, ledger):
        past = await history(name, ledger, settings)
        report = await bisect(past, desk, runtime, ledger, patterns=["web/cookie*"], write=written)

    told = report.as_json()
    assert report.culprit is not None, told
    assert (report.culprit[0], report.culprit[1].number) == ("t2", 5), told  # what was only looked at is not counted
    assert report.culprit[1].text == "click text=Remember me"
    assert (report.fails_alone, report.verdict, report.gaps) == (True, VerdictStatus.MISMATCH, {}), told
    again = load(desk.base)
    (action,) = again.spec.destructive
    assert action.browser is not None
    assert [step.action.do for step in action.browser.steps] == [PageDo.GOTO, PageDo.CLICK]
    async with machinery(settings) as (runtime, ledger):
        checked = await check.check(again, runtime, ledger)
    assert checked.verdict is VerdictStatus.MISMATCH


async def test_another_process_acts_on_a_page_through_the_pool(
    desk: LoadedEnvironment, settings: Settings, nothing_left: None
) -> None:
    async with open_pool([desk], size=1, settings=settings) as pool, Server(pool, settings), Pool.connect(settings) as remote:
        async with remote.session("desk", trajectory="t1", wait=300, ttl=600) as session:
            seen = await session.browse(PageAction(do=PageDo.GOTO, at=AT))
            refused: Any = await session.browse(PageAction(do=PageDo.SELECT, at="select", text="none"))
        assert seen.ok
        assert seen.text.startswith(f"{AT}\ndesk\nnothing")
        assert not refused.ok


async def test_an_address_leads_out_of_a_tab_that_crashed(desk: LoadedEnvironment, settings: Settings, nothing_left: None) -> None:
    async with open_pool([desk], size=1, settings=settings) as pool, pool.session("desk", wait=300, ttl=600) as session:
        await session.browse(PageAction(do=PageDo.GOTO, at="chrome://crash"))
        crashed = await session.browse(PageAction(do=PageDo.LOOK))
        again = await session.browse(PageAction(do=PageDo.GOTO, at=AT))
        await session.browse(PageAction(do=PageDo.GOTO, at="chrome://crash"))
        once_more = await session.browse(PageAction(do=PageDo.GOTO, at=AT))  # at once: a replay does not look
        page = await session.page()
        assert (crashed.ok, again.ok, once_more.ok, len(page.context.pages)) == (False, True, True, 1), (crashed, again, once_more)
