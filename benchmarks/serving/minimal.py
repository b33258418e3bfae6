"""A minimal server of an engine, to compare with: one call of CTranslate2 for each request, and nothing else.

python -m benchmarks.serving.minimal ENGINE PORT THREADS
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import ctranslate2
import uvicorn

from cotext.data.tokenizer import load_tokenizer
from cotext.models.run_folder import read_engine


def application(folder: Path, threads: int) -> Any:
    """Return an ASGI application that translates the field `q` of a JSON body."""
    decode, tokenizer = read_engine(folder).config.decode, load_tokenizer(folder / "tokenizer")
    engine = ctranslate2.Translator(str(folder), intra_threads=threads)
    end = str(tokenizer.eos)

    def translated(text: str) -> str:
        source = [*map(str, tokenizer.encode(text)), end]
        options = {"beam_size": decode.beam, "length_penalty": decode.length_penalty, "end_token": end}
        [found] = engine.translate_batch([source], max_input_length=0, **options)
        return tokenizer.decode([int(token) for token in found.hypotheses[0]])

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        text = await asyncio.to_thread(translated, json.loads(body)["q"]) if body else ""
        content = json.dumps({"translatedText": text}).encode()
        headers = [(b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return answer


if __name__ == "__main__":
    made = application(Path(sys.argv[1]), int(sys.argv[3]))
    uvicorn.run(made, port=int(sys.argv[2]), lifespan="off", log_level="error")
