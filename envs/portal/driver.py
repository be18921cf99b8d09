"""Does in a browser what a task's solution says: verbs over a Playwright page, as a person would do them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from envs.portal.draft import ORIGIN
from envs.portal.people import password

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

Files = Callable[[str], Awaitable[bytes]]  # the content of a file of the agent's documents directory


class Driver:
    """One person at one page."""

    def __init__(self, page: Page, files: Files, origin: str = ORIGIN) -> None:
        self._page = page
        self._files = files
        self._origin = origin

    async def do(self, steps: Iterable[Any]) -> None:
        """Do steps, each a verb and its arguments."""
        for verb, *arguments in steps:
            await getattr(self, verb)(*arguments)

    async def _go(self, path: str) -> None:
        await self._page.goto(f"{self._origin}{path}")

    async def _press(self, button: Locator, answer: str | None = None) -> None:
        """Press a button that loads a page, and wait for it."""
        async with self._page.expect_navigation():
            await button.click()
        if answer is not None and answer not in await self._page.inner_text("main"):
            raise AssertionError(f"{self._page.url} does not say {answer!r}: {(await self._page.inner_text('main'))[:300]}")

    def _button(self, name: str) -> Locator:
        return self._page.get_by_role("button", name=name, exact=True)

    async def _fill(self, fields: Mapping[str, Any]) -> None:
        """Fill a form by the names of its fields."""
        for name, value in fields.items():
            field = self._page.locator(f"main [name={name}]")
            if isinstance(value, bool):
                await field.set_checked(value)
            elif await field.evaluate("field => field.tagName") == "SELECT":
                await field.select_option(str(value))
            else:
                await field.fill(str(value))

    async def sign_in(self, login: str) -> None:
        await self._go("/sign-in")
        await self._fill({"login": login, "password": password(login)})
        await self._press(self._button("Sign in"), "Hello")

    async def add(self, sku: str, quantity: int) -> None:
        await self._go(f"/product/{sku}")
        await self._fill({"quantity": quantity})
        await self._press(self._button("Add to cart"), "is in your cart")

    async def check_out(self, details: Mapping[str, str]) -> None:
        await self._go("/checkout")
        await self._fill(details)
        await self._press(self._button("Place order"), "is placed")

    async def again(self, order: str) -> None:
        await self._go(f"/orders/{order}")
        await self._press(self._button("Put everything in the cart"), "is in your cart")

    async def _line(self, sku: str) -> Locator:
        await self._go("/cart")
        return self._page.locator(f"[data-sku={sku}]")

    async def quantity(self, sku: str, units: int) -> None:
        line = await self._line(sku)
        await line.locator("[name=quantity]").fill(str(units))
        await self._press(line.get_by_role("button", name="Update"), "is changed")

    async def later(self, sku: str) -> None:
        await self._press((await self._line(sku)).get_by_role("button", name="Save for later"), "saved for later")

    async def remove(self, sku: str) -> None:
        await self._press((await self._line(sku)).get_by_role("button", name="Remove"), "is removed")

    async def new_list(self, name: str) -> None:
        await self._go("/lists")
        await self._fill({"name": name})
        await self._press(self._button("Create list"), "is there")

    async def put_on_list(self, sku: str, name: str, note: str) -> None:
        await self._go(f"/product/{sku}")
        await self._page.locator("[name=list]").select_option(label=name)
        await self._fill({"note": note})
        await self._press(self._button("Put on list"), "is on the list")

    async def _list(self, name: str) -> None:
        await self._go("/lists")
        await self._press(self._page.locator("section", has_text="My lists").get_by_role("link", name=name, exact=True))

    async def off_list(self, name: str, sku: str) -> None:
        await self._list(name)
        await self._press(self._page.locator(f"[data-sku={sku}]").get_by_role("button", name="Remove"), "is off the list")

    async def edit_list(self, name: str, changes: Mapping[str, Any]) -> None:
        await self._list(name)
        await self._fill(changes)
        await self._press(self._button("Save"), "The list is saved")

    async def account(self, changes: Mapping[str, Any]) -> None:
        await self._go("/settings")
        await self._fill({"place" if key == "place_id" else key: value for key, value in changes.items()})
        await self._press(self._button("Save settings"), "Your settings are saved")

    async def end_session(self, number: int) -> None:
        await self._go("/settings")
        await self._press(self._page.locator(f"[data-session='{number}'] button"), "is signed out")

    async def display(self, changes: Mapping[str, Any]) -> None:
        await self._go("/settings/display")
        await self._fill({key: value for key, value in changes.items() if key != "columns"})
        for box in await self._page.locator("[name=column]").all():
            if "columns" in changes:
                await box.set_checked(await box.get_attribute("value") in changes["columns"])
        await self._button("Save on this device").click()
        await self._page.get_by_text("Saved on this device.").wait_for()

    async def draft(self, fields: Mapping[str, str]) -> None:
        await self._go("/requests/new")
        await self._fill(fields)
        await self._save_draft()

    async def _save_draft(self) -> None:
        await self._button("Save draft on this device").click()
        await self._page.get_by_text("is saved on this device.").wait_for()

    async def request(self, fields: Mapping[str, str]) -> None:
        await self._go("/requests/new")
        await self._fill(fields)
        await self._press(self._button("Send request"), "is sent")

    async def copy_request(self, number: str, changes: Mapping[str, str]) -> None:
        await self._go(f"/requests/{number}")
        await self._press(self._button("Copy into a new draft"))
        await self._page.get_by_text("is saved on this device.").wait_for()
        await self._fill(changes)
        await self._save_draft()
        # Saving again changes nothing that a person sees; the list of drafts is read back once it has.
        await self._go("/requests")
        await self._page.locator("[data-drafts] li").first.wait_for()

    async def keep(self, slug: str) -> None:
        await self._go(f"/guides/{slug}")
        await self._button("Keep on this device").click()
        await self._page.get_by_text("Kept on this device.").wait_for()

    async def upload(self, fields: Mapping[str, str]) -> None:
        await self._go(f"/documents/new?order={fields['order']}")
        name = fields["file"].rsplit("/", 1)[-1]
        content = {"name": name, "mimeType": "text/plain", "buffer": await self._files(fields["file"])}
        await self._page.locator("[name=file]").set_input_files(content)  # type: ignore[arg-type]  # a FilePayload
        await self._fill({"title": fields["title"], "kind": fields["kind"]})
        await self._press(self._button("Upload"), "is uploaded")

    async def decide(self, number: str, decision: str, note: str) -> None:
        await self._go(f"/requests/{number}")
        await self._fill({"note": note})
        await self._press(self._button("Approve" if decision == "approved" else "Decline"), f"is {decision}")
