# Translates on a CPU. /models contains runs, /keys the keys of clients, /state files and glossaries of the server.
# Nothing else is written.
#
#   docker build -t cotext .
#   docker run --rm -v cotext-keys:/keys cotext serve-key add me --keys /keys/keys
#   docker run --read-only --tmpfs /tmp -p 127.0.0.1:5000:5000 -v ./runs:/models:ro -v cotext-keys:/keys:ro \
#     -v cotext-state:/state cotext serve /models/a --host 0.0.0.0 --keys /keys/keys --state /state
FROM python:3.11-slim AS build
COPY constraints.txt pyproject.toml README.md LICENSE /cotext/
COPY src /cotext/src
COPY packages /cotext/packages
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    -c /cotext/constraints.txt torch \
 && /venv/bin/pip install --no-cache-dir -c /cotext/constraints.txt '/cotext[files,serve,ctranslate2]' \
 && for model in /cotext/packages/*/; do [ ! -d "$model" ] || /venv/bin/pip install --no-cache-dir --no-deps "$model"; done

FROM python:3.11-slim
COPY --from=build /venv /venv
RUN useradd --create-home --uid 10001 cotext && mkdir /models /keys /state && chown cotext /keys /state
USER cotext
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /models
VOLUME ["/keys", "/state"]
EXPOSE 5000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5000/health', timeout=4)"]
ENTRYPOINT ["cotext"]
CMD ["--help"]
