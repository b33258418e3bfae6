"""DeepL's client for JavaScript against a server: `npm install --prefix tests/serving` brings it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cotext.serving.systems import Systems
from tests.serving.loopback import served
from tests.serving.tiny_server import tiny_application

HERE = Path(__file__).parent
SCRIPT = """
const deepl = require("deepl-node");
const client = new deepl.DeepLClient("k", { serverUrl: process.argv[1] });
(async () => {
  const texts = await client.translateText(["The cat sees a dog.", "It runs."], "en", "de",
    { extraRequestParameters: { cotext: JSON.stringify({ document: true, system: "window" }) },
      context: "A cat.", showBilledCharacters: true });
  const tags = await client.translateText('The cat <x id="7"></x> runs.', null, "de",
    { tagHandling: "xml", ignoreTags: ["x"] });
  const content = Buffer.from("The cat runs.\\n");
  const handle = await client.uploadDocument(content, "en", "de", { filename: "a.txt" });
  let status;
  do { status = await client.getDocumentStatus(handle); } while (!status.done() && status.ok());
  const usage = await client.getUsage();
  console.log(JSON.stringify({
    texts: texts.map((each) => [each.text, each.detectedSourceLang, each.billedCharacters]),
    tags: tags.text,
    status: status.status, used: usage.character.count,
    languages: (await client.getTargetLanguages()).map((each) => each.code),
  }));
})().catch((error) => { console.error(String(error)); process.exit(1); });
"""


@pytest.mark.outside
def test_the_client_for_javascript(systems: Systems, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (HERE / "node_modules" / "deepl-node").is_dir():
        pytest.skip("node or deepl-node is not installed")
    with served(tiny_application(systems, tmp_path)) as server:
        command = [node, "-e", SCRIPT, str(server.base_url)]
        done = subprocess.run(
            command, cwd=HERE, capture_output=True, encoding="utf-8", timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(language, billed) for _, language, billed in found["texts"]] == [("en", 19), ("en", 8)]
    assert found["tags"].count('<x id="7"></x>') == 1
    assert found["status"] == "done"
    assert found["languages"] == ["de"]
    assert found["used"] == 0
