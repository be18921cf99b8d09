// Drafts of requests: kept in IndexedDB, on this device only, until they are sent or discarded.
const FIELDS = ["kind", "title", "body", "amount", "needed_by"];

function open() {
  return new Promise((done, failed) => {
    const asked = indexedDB.open("portal", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore("drafts", { keyPath: "id", autoIncrement: true });
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => failed(asked.error);
  });
}

async function within(mode, act) {
  const database = await open();
  try {
    return await new Promise((done, failed) => {
      const transaction = database.transaction("drafts", mode);
      const asked = act(transaction.objectStore("drafts"));
      transaction.oncomplete = () => done(asked.result);
      transaction.onerror = () => failed(transaction.error);
    });
  } finally {
    database.close();
  }
}

// Two decimals where it is a number, so that 240 and 240.00 are kept alike.
const money = (text) => (text !== "" && Number.isFinite(Number(text.replace(",", "."))) ? Number(text.replace(",", ".")).toFixed(2) : text);

const me = document.body.dataset.person;
const all = async () => (await within("readonly", (store) => store.getAll())).filter((draft) => draft.person === me);
const read = (id) => within("readonly", (store) => store.get(id));
const save = (draft) => within("readwrite", (store) => store.put(draft));
const remove = (id) => within("readwrite", (store) => store.delete(id));

async function startForm(form) {
  const state = form.querySelector("[data-draft-state]");
  const discard = form.querySelector("[data-draft-discard]");
  const asked = new URL(location.href).searchParams.get("draft");
  let id = asked ? Number(asked) : null;
  const known = () => {
    discard.hidden = id === null;
    form.elements.draft.value = id === null ? "" : String(id);
    state.textContent = id === null ? "Not saved on this device." : `Draft ${id} is saved on this device.`;
  };
  if (id !== null) {
    const draft = await read(id);
    if (draft) for (const name of FIELDS) form.elements[name].value = draft[name];
    else id = null;
  }
  known();
  form.querySelector("[data-draft-save]").addEventListener("click", async () => {
    const draft = { person: me, saved_at: new Date().toISOString() };
    for (const name of FIELDS) draft[name] = form.elements[name].value.trim();
    draft.amount = money(draft.amount);
    if (id !== null) draft.id = id;
    id = await save(draft);
    history.replaceState(null, "", `/requests/new?draft=${id}`);
    known();
  });
  discard.addEventListener("click", async () => {
    await remove(id);
    location.assign("/requests");
  });
}

function startCopy(button) {
  button.addEventListener("click", async () => {
    const card = button.closest("[data-request]");
    const id = await save({
      person: me,
      saved_at: new Date().toISOString(),
      kind: card.querySelector("[data-kind]").textContent,
      title: button.dataset.title,
      body: card.querySelector("[data-body]").textContent,
      amount: card.querySelector("[data-amount]").dataset.amount,
      needed_by: card.querySelector("[data-needed]").textContent,
    });
    location.assign(`/requests/new?draft=${id}`);
  });
}

async function showList(list) {
  const drafts = await all();
  const box = list.closest("[data-drafts-home]");
  if (box) box.hidden = drafts.length === 0;
  for (const draft of drafts) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `/requests/new?draft=${draft.id}`;
    link.textContent = draft.title || "(no title)";
    const kind = document.createElement("span");
    kind.textContent = `${draft.kind}, ${draft.amount} €`;
    item.append(link, " ", kind);
    list.append(item);
  }
}

export function startDrafts() {
  if (!me) return;
  const sent = new URL(location.href).searchParams.get("sent");
  if (sent) remove(Number(sent));
  const form = document.querySelector("[data-draft-form]");
  if (form) startForm(form);
  for (const button of document.querySelectorAll("[data-draft-copy]")) startCopy(button);
  const list = document.querySelector("[data-drafts]");
  if (list) showList(list);
}
