# Sourced by the scripts beside it: sets up what they need, and only what is missing.
#
#   ensure_python LEVEL
#                   PYTHON is an interpreter with the project and its pinned dependencies (.venv):
#                   for `server` what clients and servers need, for `engine` also Spark, for `dev`
#                   also the development tools
#   ensure_java     JAVA_HOME, or the `java` on the PATH, is Java 17 or later
#   ensure_jars     the Delta jars are on this machine
#   fetch_browser   there is a Chromium for the tests of pages, if one can be had
#
# Nothing here uses the network once it has succeeded: the environment is rebuilt only when
# pyproject.toml, constraints.txt, the native core or the folder's place has changed since. Set
# PSOUP_PYTHON to choose the interpreter the environment is made from.
set -euo pipefail

ROOT="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"
STAMP="$VENV/.psoup-stamp"  # a file for each level that is installed: $STAMP-engine
JAVA_LEAST=17

# Without compiled modules every server, engine and Spark worker takes seconds longer to start.
unset PYTHONDONTWRITEBYTECODE

say() { printf 'psoup: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

apt_allowed() {
    [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null
}

apt_update() {
    apt-get update -qq >&2 || say "the package lists could not be refreshed; trying with the old ones"
}

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# ---- Python

find_python() {
    local candidate
    for candidate in "${PSOUP_PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [ -n "$candidate" ] && "$candidate" -c \
            'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v -- "$candidate"
            return
        fi
    done
    die "Python 3.11 or later was not found; install it, or name it: PSOUP_PYTHON=/path/to/python3"
}

wanted_stamp() {
    printf '%s\n' "$ROOT"
    cat -- "$ROOT/pyproject.toml" "$ROOT/constraints.txt" "$ROOT/setup.py" "$ROOT"/datastem/native/*.[ch]
}

# The levels that have everything that a level has.
levels_from() {
    case "$1" in
    server) printf 'server engine dev' ;;
    engine) printf 'engine dev' ;;
    *) printf 'dev' ;;
    esac
}

python_ready() {
    local level
    for level in $(levels_from "$1"); do
        if wanted_stamp | cmp -s - "$STAMP-$level" && "$PYTHON" -c '' 2>/dev/null; then return; fi
    done
    return 1
}

extras_of() {
    case "$1" in
    server) printf 'server,web,metrics' ;;
    engine) printf 'engine,web,metrics' ;;
    *) printf 'engine,dev' ;;
    esac
}

describe_level() {
    case "$1" in
    server) printf 'the pinned dependencies (150 MB to download the first time, 500 MB on disk)' ;;
    engine) printf 'Spark and the pinned dependencies (610 MB to download the first time, 1.1 GB on disk)' ;;
    *) printf 'the pinned dependencies and development tools (710 MB to download the first time, 1.4 GB on disk)' ;;
    esac
}

make_venv() {
    local base
    base="$(find_python)"
    say "making a virtual environment in .venv with $("$base" --version)"
    if ! "$base" -c 'import ensurepip, venv' 2>/dev/null; then
        apt_allowed || die "Python's venv module is missing; install it: sudo apt-get install python3-venv"
        apt_update
        apt_install python3-venv
    fi
    "$base" -m venv "$VENV"
}

show_downloads() {
    grep --line-buffered '^ *Downloading .*MB)' >&2 || true
}

build_python() {
    if python_ready "$1"; then return; fi
    local level="$1" higher
    # An environment that had Spark or the tools gets them in their new versions, too.
    for higher in $(levels_from "$1"); do
        if [ -e "$STAMP-$higher" ]; then level="$higher"; fi
    done
    rm -f -- "$STAMP"-*
    "$PYTHON" -m pip --version >/dev/null 2>&1 || make_venv
    say "installing $(describe_level "$level")"
    (cd -- "$ROOT" && "$PYTHON" -m pip install --disable-pip-version-check --progress-bar off \
        --constraint constraints.txt --editable ".[$(extras_of "$level")]") | show_downloads ||
        die "the dependencies could not be installed; see above, then run this again"
    wanted_stamp >"$STAMP.new"
    mv -f -- "$STAMP.new" "$STAMP-$level"
}

# A linked environment belongs to another clone: setting it up here would break it there.
refuse_linked_venv() {
    [ -d "$VENV" ] || return 0
    local real
    real="$(cd -- "$VENV" && pwd -P)"
    [ "$real" = "$VENV" ] ||
        die ".venv is a link to $real, the environment of another clone. Remove the link" \
            "(rm '$VENV'), and this clone makes an environment of its own."
}

ensure_python() {
    refuse_linked_venv
    if python_ready "$1"; then return; fi
    mkdir -p -- "$VENV"
    (
        if command -v flock >/dev/null; then
            flock --nonblock 9 || { say "waiting for another set-up to finish" && flock 9; }
        fi
        build_python "$1"
    ) 9>"$VENV/.psoup-lock"
}

# ---- Java

java_major() {
    "$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

java_is_enough() {
    local major
    command -v -- "$1" >/dev/null || return 1
    major="$(java_major "$1")"
    [ "${major:-0}" -ge "$JAVA_LEAST" ]
}

java_places() {
    printf '%s\n' /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java
}

find_java() {
    local java
    if [ -n "${JAVA_HOME:-}" ] && java_is_enough "$JAVA_HOME/bin/java"; then return; fi
    if java_is_enough java; then
        unset JAVA_HOME
        return
    fi
    while IFS= read -r java; do
        if java_is_enough "$java"; then
            export JAVA_HOME="${java%/bin/java}"
            return
        fi
    done < <(java_places)
    return 1
}

java_package() {
    local package
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            printf '%s\n' "$package"
            return
        fi
    done
    printf 'default-jre-headless\n'
}

java_advice() {
    if command -v apt-get >/dev/null; then
        printf 'sudo apt-get install -y %s' "$(java_package)"
    elif command -v dnf >/dev/null; then
        printf 'sudo dnf install -y java-17-openjdk-headless'
    elif command -v brew >/dev/null; then
        printf 'brew install openjdk@17'
    else
        printf 'get it from https://adoptium.net and set JAVA_HOME'
    fi
}

ensure_java() {
    if find_java; then return; fi
    if apt_allowed; then
        say "installing Java for Spark (once)"
        apt_update
        apt_install "$(java_package)" && find_java && return
    fi
    die "Spark needs Java $JAVA_LEAST or later, and none was found. This installs it: $(java_advice)"
}

# ---- Spark's jars

ensure_jars() {
    "$PYTHON" -m psoup.engine.jars
}

# ---- a browser, for tests only

# Unpacks Debian's Chromium into the user's cache and installs nothing, so it needs no root. Tests
# find it there (tests/support/browser.py), and skip with a reason if there is none.
fetch_browser() {
    local place="${XDG_CACHE_HOME:-$HOME/.cache}/psoup/browser" part
    [ ! -x "$place/chromium" ] && [ -z "${PSOUP_BROWSER:-}" ] || return 0
    if command -v chromium chromium-browser google-chrome >/dev/null; then return; fi
    command -v apt-get dpkg >/dev/null || {
        say "no Chromium, and no apt-get to fetch one: the tests of pages will be skipped"
        return
    }
    say "fetching Chromium for the tests of pages (once, 120 MB)"
    [ "$(id -u)" != 0 ] || apt_update
    part="$(mktemp -d)"
    if (set -e && cd -- "$part" && unpack_browser >&2); then
        mkdir -p -- "$(dirname -- "$place")"
        rm -rf -- "$place" && mv -- "$part" "$place"
    else
        say "Chromium could not be fetched: the tests of pages will be skipped"
        rm -rf -- "$part"
    fi
}

unpack_browser() {
    local package
    mkdir packages root
    apt-get install --simulate --no-install-recommends chromium | awk '/^Inst/ { print $2 }' |
        (cd packages && xargs apt-get download --quiet --quiet)
    for package in packages/*.deb; do dpkg --extract "$package" root; done
    rm -rf packages
    [ -x root/usr/lib/chromium/chromium ]
    cat >chromium <<'SCRIPT'
#!/bin/sh
root="$(dirname -- "$(readlink -f -- "$0")")/root"
libraries="$(find "$root/usr/lib" "$root/lib" -name '*.so*' -printf '%h\n' 2>/dev/null | sort -u | tr '\n' ':')"
export LD_LIBRARY_PATH="$libraries"
exec "$root/usr/lib/chromium/chromium" "$@"
SCRIPT
    chmod +x chromium
}
