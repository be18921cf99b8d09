"""Reading tool calls out of text, in both styles, and telling the model what was wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.policies.calls import parse
from rollout.policies.policy import Calls, Final, Malformed, ToolSpec
from rollout.tools.tool import text_schema

TOOLS = (
    ToolSpec(name="sql", description="", parameters=text_schema(query="")),
    ToolSpec(name="edit", description="", parameters=text_schema(path="", old="", new="")),
    ToolSpec(name="look", description="", parameters=text_schema()),
)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "sql", "arguments": {"query": "select 1"}}</tool_call>',
        'I look first.\n<tool_call>\n{"name": "sql", "arguments": {"query": "select 1"}}\n</tool_call>',
        "<function=sql><parameter=query>select 1</parameter></function>",
        "<tool_call>\n<function=sql>\n<parameter=query>\nselect 1\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_both_styles_give_the_same_call(text: str) -> None:
    answer = parse(text, TOOLS)

    assert isinstance(answer, Calls)
    assert [(c.tool, dict(c.arguments)) for c in answer.calls] == [("sql", {"query": "select 1"})]


def test_several_calls_keep_their_order_and_line_breaks_inside_values_stay() -> None:
    text = "<function=edit><parameter=path>/a</parameter><parameter=old>\n\nx\n</parameter><parameter=new></parameter></function>"
    answer = parse(f"{text}<function=look></function>", TOOLS)

    assert isinstance(answer, Calls)
    assert [c.tool for c in answer.calls] == ["edit", "look"]
    assert answer.calls[0].arguments == {"path": "/a", "old": "\nx", "new": ""}


@pytest.mark.parametrize("text", ["", "All done.", "a < b and c > d", "use {json: yes}"])
def test_text_without_a_call_is_final(text: str) -> None:
    assert parse(text, TOOLS) == Final(text=text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('<tool_call>{"name": "sql", "arguments": {"query": "select 1"}', "opened and not closed"),
        ('<tool_call>{"name": "sql" "arguments": {}}</tool_call>', "not valid JSON"),
        ('<tool_call>["sql"]</tool_call>', "a call is"),
        ('<tool_call>{"name": "sql", "arguments": "select 1"}</tool_call>', "must be an object"),
        ('<tool_call>{"name": "rm", "arguments": {}}</tool_call>', "there is no tool 'rm'; there are: edit, look, sql"),
        ('<tool_call>{"name": "sql", "arguments": {}}</tool_call>', "sql needs query"),
        ('<tool_call>{"name": "sql", "arguments": {"query": 7}}</tool_call>', "query must be a string"),
        ('<tool_call>{"name": "look", "arguments": {"x": "1"}}</tool_call>', "no parameter x; it has: none"),
        ("<function=sql><parameter=query>select 1</parameter>", "has no `</function>`"),
        ("<function=look></function>" * 9, "9 calls in one answer"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, why: str) -> None:
    answer = parse(text, TOOLS)

    assert isinstance(answer, Malformed)
    assert why in answer.why


@given(
    st.lists(
        st.sampled_from(
            ["<tool_call>", "</tool_call>", "<function=sql>", "</function>", "<parameter=query>", "</parameter>", "{", "}"]
        )
        | st.text(max_size=8),
        max_size=12,
    ).map("".join)
)
def test_no_text_breaks_the_reader_and_a_call_always_names_a_known_tool(text: str) -> None:
    answer = parse(text, TOOLS)

    if isinstance(answer, Calls):
        assert {c.tool for c in answer.calls} <= {"sql", "edit", "look"}
