# The app, run by a user without rights. How to build and start it: docs/install.md.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

# Options of pip, such as the index of torch's CPU builds.
ARG PIP_OPTIONS=""

COPY .ci/container-packages /src/.ci/container-packages
RUN /src/.ci/container-packages

COPY app.py setup.py pyproject.toml MANIFEST.in README.md LICENSE requirements.txt /src/
COPY .ci/install-app /src/.ci/install-app
COPY .streamlit /src/.streamlit
COPY pages /src/pages
COPY assets /src/assets
COPY mta_viz /src/mta_viz
RUN /src/.ci/install-app /opt/mta-viz ${PIP_OPTIONS} \
    && mkdir /models && find /src/assets -mindepth 1 -maxdepth 1 -name '*-*' ! -name 'blocks-*' -exec mv -t /models {} + \
    && rm -rf /src \
    && useradd --create-home --uid 10001 mta

USER mta
WORKDIR /home/mta
EXPOSE 8501
HEALTHCHECK --start-period=60s CMD ["/opt/mta-viz/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/_stcore/health')"]
ENTRYPOINT ["/opt/mta-viz/bin/mta-viz"]
CMD ["app", "--address", "0.0.0.0", "--port", "8501", "--models", "/models"]
