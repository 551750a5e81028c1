#!/usr/bin/env bash
# The steps of a release, each by itself: check VERSION, build, smoke, notes VERSION; `ready VERSION` does all of them and
# prints the commands that tag and push. Nothing is tagged or pushed by this script.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

check() { # the version stands everywhere, and the changelog has a section of it
    local version=$1 file
    grep -qx "version = \"$version\"" pyproject.toml || fail "pyproject.toml has another version than $version"
    grep -qx "__version__ = \"$version\"" src/genelab/__init__.py || fail "genelab.__version__ is not $version"
    grep -qx "version: $version" CITATION.cff || fail "CITATION.cff has another version than $version"
    ! grep -q "^## Unreleased" CHANGELOG.md || fail "CHANGELOG.md has a section '## Unreleased': what is in it belongs to $version"
    [ -n "$(notes "$version")" ] || fail "CHANGELOG.md has no section '## $version'"
    for file in LICENSE NOTICE CITATION.cff; do [ -s "$file" ] || fail "$file is missing"; done
}

notes() { # the changelog of a version, without its heading
    awk -v heading="## $1" '$0 ~ "^## " {inside = ($0 == heading || index($0, heading " ") == 1); next} inside' CHANGELOG.md
}

build() { # wheel and source archive in dist/
    rm -rf dist
    "$PYTHON" -m venv .venv-build
    .venv-build/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling
    .venv-build/bin/python -m hatchling build
    rm -rf .venv-build
}

smoke() { # the wheel alone, in a fresh environment, outside of the repository
    local place
    place=$(mktemp -d)
    "$PYTHON" -m venv "$place/venv"
    "$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
    (
        cd "$place"
        venv/bin/genelab --version
        venv/bin/genelab list
        venv/bin/genelab play GeneLab-Inverted-Pendulum-v0 --agent trained --steps 64
        venv/bin/genelab train GeneLab-Inverted-Pendulum-v0 --max-iterations 1 --num-envs 8 --log-dir run --quiet
        venv/bin/genelab export GeneLab-Inverted-Pendulum-v0 run --out policy.ts
    )
    rm -rf "$place"
}

ready() {
    check "$1"
    [ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
    build
    smoke
    git config --get remote.origin.url | grep -Eq '^(https://|ssh://|git@)' || printf '\n%s\n' "release: the wheel does not say \
where the project is, because the remote 'origin' is no address on the net. Set it: git remote set-url origin https://..."
    printf '\nReady. What is left:\n    git tag -a v%s -m "GeneLab %s"\n    git push origin v%s\n' "$1" "$1" "$1"
}

fail() {
    echo "release: $1" >&2
    exit 1
}

case "${1:-}" in
check | notes | ready)
    [ -n "${2:-}" ] || fail "$1 needs a version, as in: tools/release.sh $1 0.2.0"
    "$1" "$2"
    ;;
build | smoke) "$1" ;;
*) fail "say check VERSION, notes VERSION, build, smoke or ready VERSION" ;;
esac
