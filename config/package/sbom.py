#!/usr/bin/env python3
"""Prints the bill of materials of the program, in CycloneDX 1.5: each crate that is compiled into it, with its version, its
licence and the checksum of Cargo.lock.

    python3 config/package/sbom.py > quorate.cdx.json

It runs `cargo metadata` and `cargo tree`, builds nothing, and has the same output for the same commit.
"""

import json, subprocess, sys, tomllib

ROOT = "quorate-cli"


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked_packages():
    """Returns the names and versions of the packages that are compiled into the program, with its default features."""
    tree = output("cargo", "tree", "--locked", "--package", ROOT, "--edges", "normal", "--prefix", "none", "--format", "{p}")
    return {(line.split()[0], line.split()[1].removeprefix("v")) for line in tree.splitlines()}


def component(package, sums):
    name, version = package["name"], package["version"]
    of = {"type": "library", "name": name, "version": version, "purl": f"pkg:cargo/{name}@{version}"}
    of["bom-ref"] = of["purl"]
    if package["license"]:
        of["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in sums:
        of["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    return of


def main():
    tree = json.loads(output("cargo", "metadata", "--locked", "--format-version", "1"))
    nodes = {node["id"]: node for node in tree["resolve"]["nodes"]}
    wanted = linked_packages()
    packages = [of for of in tree["packages"] if (of["name"], of["version"]) in wanted]
    with open("Cargo.lock", "rb") as file:
        locked = tomllib.load(file)["package"]
    sums = {(of["name"], of["version"]): of["checksum"] for of in locked if "checksum" in of}
    linked = sorted(packages, key=lambda of: (of["name"], of["version"]))
    root = next(of for of in linked if of["name"] == ROOT)
    refs = {of["id"]: f"pkg:cargo/{of['name']}@{of['version']}" for of in linked}
    def needs(of):
        deps = [dep for dep in nodes[of["id"]]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        return sorted({refs[dep["pkg"]] for dep in deps if dep["pkg"] in refs})

    depends = [{"ref": refs[of["id"]], "dependsOn": needs(of)} for of in linked]
    program = component(root, sums) | {"type": "application"}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": [component(of, sums) for of in linked if of is not root],
        "dependencies": depends,
    }
    json.dump(document, sys.stdout, indent=1)
    print()


main()
