#!/bin/sh
# unpack.sh FOLDER: bring nginx and Caddy into a folder where this machine has none.
#
# They are unpacked and not installed: their packages would start them, and need root. Where `nginx` is a package that
# only names others, its program is in nginx-core. What it needs and the machine has not is unpacked beside it.
set -u
mkdir -p "$1" && cd "$1" || exit 1

libraries() { find "$PWD" -name '*.so.*' -exec dirname {} + 2>/dev/null | sort -u | tr '\n' ':'; }

runs() {
  for place in "$(command -v "$1")" "/usr/sbin/$1" usr/bin/"$1" usr/sbin/"$1"; do
    case $1 in nginx) question=-v ;; *) question=version ;; esac
    test -x "$place" && LD_LIBRARY_PATH=$(libraries) "$place" $question >/dev/null 2>&1 && return
  done
  return 1
}

unpack() {
  rm -rf packages && mkdir packages
  (cd packages && apt-get download "$@") >/dev/null 2>&1 || return 1
  for file in packages/*.deb; do dpkg -x "$file" . || return 1; done
}

bring() {
  program=$1
  for package; do
    runs "$program" && return
    unpack "$package" || continue
    # Without libc, which every machine has, and which fits only its own loader.
    needed=$(apt-cache depends --important "$package" 2>/dev/null |
      sed -n 's/^ *Depends: \(z*lib[a-z0-9.+-]*\)$/\1/p' | grep -v '^libc6$')
    runs "$program" || test -z "$needed" || unpack $needed
  done
  runs "$program"
}

for attempt in first second; do
  missing=""
  runs nginx || { echo "unpacking nginx"; bring nginx nginx-core nginx-light || missing=nginx; }
  runs caddy || { echo "unpacking caddy"; bring caddy || missing="$missing caddy"; }
  rm -rf packages
  test -n "$missing" || exit 0
  # The lists of packages may be old, or not there.
  test $attempt = second || apt-get update >/dev/null 2>&1 || break
done
echo "not found and not unpacked: $missing; the tests that need it are skipped"
