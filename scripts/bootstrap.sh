#!/usr/bin/env bash
# Makes this machine ready to build: Debian packages (as root, only those missing), then build/venv with
# requirements.txt. Safe to run at any time; does nothing, in well under a second, when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
venv=$root/build/venv
mkdir -p build

# Two builds started at once take turns here.
exec 9>build/.bootstrap.lock
flock 9

missing=()

need_command() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need_command g++ g++
need_command cmake cmake
need_command ninja ninja-build
need_command python3 python3
need_command ccache ccache

# One run of the preprocessor asks for all headers.
headers="nlohmann/json.hpp=nlohmann-json3-dev gtest/gtest.h=libgtest-dev gmock/gmock.h=libgmock-dev
CLI/CLI.hpp=libcli11-dev fmt/core.h=libfmt-dev liburing.h=liburing-dev benchmark/benchmark.h=libbenchmark-dev"
if command -v g++ >/dev/null 2>&1; then
  absent=$(for entry in $headers; do
    printf '#if !__has_include(<%s>)\nmissing %s\n#endif\n' "${entry%%=*}" "${entry##*=}"
  done | g++ -std=c++20 -E -P -x c++ - | sed -n 's/^missing //p' | tr -d ' ')
  for package in $absent; do missing+=("$package"); done
else
  for entry in $headers; do missing+=("${entry##*=}"); done
fi

if command -v python3 >/dev/null 2>&1; then
  for package in $(python3 - <<'PY'
import importlib.util, os, sysconfig
if importlib.util.find_spec("ensurepip") is None:
    print("python3-venv")
if not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
    print("python3-dev")
PY
  ); do missing+=("$package"); done
else
  missing+=(python3-venv python3-dev)
fi

# ccache only saves time; its absence stops nobody.
required=()
for package in "${missing[@]}"; do [[ $package == ccache ]] || required+=("$package"); done

if ((${#missing[@]})); then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null 2>&1; then
    echo "bootstrap: installing ${missing[*]}" >&2
    apt-get -qq update >&2
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" \
      </dev/null >&2 || ((!${#required[@]}))
  elif ((${#required[@]})); then
    echo "bootstrap: missing: ${required[*]}" >&2
    echo "bootstrap: install these Debian packages (or their like), or run this script as root" >&2
    exit 1
  fi
fi

# The stamp names all that the environment was made from, its own path included: it cannot be moved.
python=$(command -v python3)
stamp=$({ cat requirements.txt; echo "$venv"; python3 -c 'import sys; print(sys.version, sys.prefix)'; } |
  sha256sum | cut -d' ' -f1)
if [[ ! -f $venv/.ready || $(<"$venv/.ready") != "$stamp" ]]; then
  if [[ ! -x $venv/bin/python ]] ||
     ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1 ||
     [[ $("$venv/bin/python" -c 'import sys; print(sys.version, sys.prefix)') != \
        "$(python3 -c "import sys; print(sys.version, '$venv')")" ]]; then
    echo "bootstrap: making build/venv with $python" >&2
    rm -rf "$venv"
    "$python" -m venv "$venv"
  fi
  rm -f "$venv/.ready"
  echo "bootstrap: installing requirements.txt into build/venv" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.txt \
    </dev/null >&2
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  printf '%s\n%s\n' "$root/python" "$root/build/python" >"$site/outsize.pth"
  echo "$stamp" >"$venv/.ready"
fi
