#!/usr/bin/env bash
# Run commands in a clean Debian that has Python, make and nothing else: no git, no compiler, no locale, no
# terminal, an empty home and a read-only system, as an ordinary user.
#
#   tools/clean_container.sh                            make demo, then make test
#   tools/clean_container.sh 'make demo' 'ls -a ~'      these, one after the other
#
# It needs root, git, bubblewrap, user namespaces and, the first time, debootstrap and a Debian mirror. What is
# tried is the last commit. Settings, by environment variables:
#   CLEAN   the folder with the system and the home; default: /tmp/dpadmm-clean
#   AGAIN   1 keeps the home of the last time, with its clone and .venv, as a second command would find it
#   BIND    folders of this machine that are shown read-only, such as those of a local package index
#   SUITE   the Debian release; default: bookworm
#   ALSO    further Debian packages, with commas; only the first time
# pip inside asks the same index as outside: its settings (PIP_*, pip.conf) are handed on.
set -euo pipefail
clone="$(cd "$(dirname "$0")/.." && pwd)"
clean="${CLEAN:-/tmp/dpadmm-clean}"
system="$clean/system"
home="$clean/home"

# As root, what is removed below must be of an earlier time, and nobody else may put anything in its place.
mkdir -p "$clean"
if [ ! -O "$clean" ] || { [ -e "$home" ] && [ ! -e "$clean/made" ]; }; then
  echo "CLEAN must be a new folder or one that this made, for its user; got $clean. Name another." >&2
  exit 2
fi
if [ ! -e "$clean/made" ]; then
  debootstrap --variant=minbase --include="python3,python3-venv,make,ca-certificates${ALSO:+,$ALSO}" \
    "${SUITE:-bookworm}" "$system"
  touch "$clean/made"
fi
if [ "${AGAIN:-}" != 1 ]; then
  rm -rf "$home"
  mkdir -p "$home/dpadmm"
  git -C "$clone" archive HEAD | tar --extract --directory "$home/dpadmm"
  chown -R 1000:1000 "$home"
fi

# As every container's: debootstrap writes none.
echo '127.0.0.1 localhost' > "$system/etc/hosts"
mkdir -p "$system/home/user"
inside=(--ro-bind "$system" / --proc /proc --dev /dev --tmpfs /tmp --bind "$home" /home/user
  --unshare-all --share-net --new-session --die-with-parent --chdir /home/user/dpadmm
  --clearenv --setenv HOME /home/user --setenv PATH /usr/bin:/bin
  --ro-bind /etc/resolv.conf /etc/resolv.conf)
while IFS='=' read -r name value; do
  inside+=(--setenv "$name" "$value")
done < <(env | grep '^PIP_' || true)
# They may name an index by its password: nothing of it stays in the system.
trap 'rm -f "$system/etc/pip.conf" "$system/etc/pip-user.conf"' EXIT
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$system/etc/pip.conf"
settings="${PIP_CONFIG_FILE:-${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf}"
if [ -f "$settings" ]; then
  cp "$settings" "$system/etc/pip-user.conf"
  inside+=(--setenv PIP_CONFIG_FILE /etc/pip-user.conf)
fi
for folder in ${BIND:-}; do
  mkdir -p "$system$folder"
  inside+=(--ro-bind "$folder" "$folder")
done

[ $# -gt 0 ] || set -- 'make demo' 'make test'
for command in "$@"; do
  echo "== $command" >&2
  setpriv --reuid=1000 --regid=1000 --clear-groups bwrap "${inside[@]}" /bin/sh -c "$command" < /dev/null
done
