"""Checks the Kubernetes manifests against the schemas of several versions of Kubernetes, and the files inside them.

    python3 tests/package/kubernetes.py FILE...

The output names each error. The configuration files inside the manifests are written to $CONFIG_DIR, if it is set.
"""

import os
import pathlib
import sys

import kubernetes_validate
import yaml

# Sidecars (restartPolicy of an init container) are enabled from 1.29 on.
VERSIONS = ["1.29", "1.33", "1.37"]


def errors_of(document, version):
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(str(part) for part in error.path)}: {error.message}"
    return None


def main():
    failures, count = [], 0
    documents = [(name, document) for name in sys.argv[1:] for document in yaml.safe_load_all(open(name))]
    for name, document in documents:
        for version in VERSIONS:
            error = errors_of(document, version)
            if error:
                failures.append(f"{name}: {document.get('kind')}: Kubernetes {version}: {error}")
            count += 1
        if os.environ.get("CONFIG_DIR") and document["kind"] == "ConfigMap":
            for file, text in document["data"].items():
                of = "" if file != "quorate.toml" else document["metadata"]["name"].split("-")[0] + "-"
                (pathlib.Path(os.environ["CONFIG_DIR"]) / (of + file)).write_text(text)
    # A validator that accepts everything would find nothing either.
    of_kind = [document for _, document in documents if document["kind"] == "Deployment"]
    sidecar_of = lambda document: document["spec"]["template"]["spec"]["initContainers"][0]
    workers = [document for document in of_kind if sidecar_of(document)["args"][0] == "lead"]
    clients = [document for document in of_kind if sidecar_of(document)["args"][0] == "serve"]
    for key, value in [("replicas", "three"), ("replica", 3)]:
        wrong = dict(workers[0], spec=dict(workers[0]["spec"], **{key: value}))
        if not errors_of(wrong, VERSIONS[-1]):
            failures.append(f"the validator accepts {key}: {value!r}")
    sidecar = sidecar_of(workers[0])
    if workers[0]["spec"]["replicas"] != 3 or sidecar["readinessProbe"]["httpGet"]["path"] != "/leader":
        failures.append("there are not three workers with /leader as the readiness probe of their sidecar")
    # Both containers need the directory of the socket.
    pod = clients[0]["spec"]["template"]["spec"]
    for container in pod["initContainers"] + pod["containers"]:
        if "/run/quorate" not in [mount["mountPath"] for mount in container["volumeMounts"]]:
            failures.append(f"{container['name']} has no directory for the socket")
    print("\n".join(failures) or f"{len(documents)} objects, {count} checks: all are valid")
    return 1 if failures else 0


sys.exit(main())
