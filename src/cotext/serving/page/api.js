// Requests of the page to the server: JSON in, JSON or server-sent events out, errors with messages for users.

/** An error response; `status` is 0 if the server was not reached. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** Whether a key is missing or invalid. */
  get needsKey() {
    return this.status === 401 || this.status === 403;
  }
}

async function ask(path, options = {}) {
  const headers = new Headers(options.headers);
  const key = recall("key");
  if (key) headers.set("Authorization", `Bearer ${key}`);
  let response;
  try {
    response = await fetch(new URL(`api/${path}`, document.baseURI), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached. Is it running, and is this machine connected?");
  }
  if (response.ok) return response;
  throw new ApiError(response.status, await messageOf(response));
}

async function messageOf(response) {
  try {
    const { message } = await response.json();
    if (typeof message === "string" && message) return message;
  } catch {
    // A proxy answered in another form.
  }
  return `The server answered ${response.status}. Try again in a moment.`;
}

const asJson = (method, content, signal) => ({
  method,
  signal,
  body: JSON.stringify(content),
  headers: { "Content-Type": "application/json" },
});

/** The systems of the server, its limits and the supported file suffixes. */
export const systems = async () => (await ask("systems")).json();

/** Yields the events of a translation: `{event, data}`. */
export async function* translate(content, signal) {
  const options = asJson("POST", content, signal);
  options.headers.Accept = "text/event-stream";
  const response = await ask("translate", options);
  yield* events(response.body);
}

/** Returns which context decided a word. */
export const explain = async (content, signal) => (await ask("explain", asJson("POST", content, signal))).json();

/** Returns the files of this client, the newest first. */
export const jobs = async () => (await (await ask("files")).json()).files;

/** Uploads a file. */
export async function submit(file, system, glossary) {
  const form = new FormData();
  form.append("file", file);
  form.append("system", system);
  form.append("glossary", JSON.stringify(glossary));
  return (await ask("files", { method: "POST", body: form })).json();
}

/** Returns the translated file. */
export const result = async (id) => (await ask(`files/${encodeURIComponent(id)}/result`)).blob();

/** Cancels and deletes a file. */
export const forget = (id) => ask(`files/${encodeURIComponent(id)}`, { method: "DELETE" });

// Yields the server-sent events of a byte stream, without comments; the server writes each in two lines.
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const found = /^event: (.*)\ndata: (.*)$/.exec(block);
        if (found) yield { event: found[1], data: JSON.parse(found[2]) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Storage: text, systems and key until the tab is closed; glossaries permanently.

const PREFIX = "cotext.";

function reading(store, name, otherwise) {
  try {
    const found = store.getItem(PREFIX + name);
    return found === null ? otherwise : JSON.parse(found);
  } catch {
    return otherwise; // storage is disabled, or the value is invalid
  }
}

function writing(store, name, value) {
  try {
    if (value === null) store.removeItem(PREFIX + name);
    else store.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage is full or disabled.
  }
}

/** Returns a value stored for this tab. */
export const recall = (name, otherwise = null) => reading(sessionStorage, name, otherwise);

/** Stores a value until this tab is closed; null deletes it. */
export const remember = (name, value) => writing(sessionStorage, name, value);

/** Returns the glossary of a language pair, as pairs of texts. */
export const glossaryOf = (pair) => reading(localStorage, `glossary.${pair}`, []);

/** Stores the glossary of a language pair in this browser. */
export const keepGlossary = (pair, entries) => writing(localStorage, `glossary.${pair}`, entries);
