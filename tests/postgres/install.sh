#!/bin/sh
# install.sh: install PostgreSQL and PgBouncer where this machine has none, and start neither.
#
# Their packages would create a cluster, start both, and start them again at each boot. The tests start servers of
# their own (servers.py), so two files say no while the packages are installed, and are removed after that. A machine
# that has the programs already is not touched.
set -u
PATH=$PATH:/usr/sbin:/sbin

has_postgres() {
  for folder in /usr/lib/postgresql/*/bin "$(dirname "$(command -v initdb || echo /nowhere/initdb)")"; do
    test -x "$folder/initdb" && test -x "$folder/postgres" && return
  done
  return 1
}

find_missing() {
  missing=""
  has_postgres || missing="postgresql"
  command -v pgbouncer >/dev/null || missing="$missing pgbouncer"
}

policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.d/nacre-tests.conf

forbid_starts() {
  mkdir -p "${clusters%/*}" && echo "create_main_cluster = off" >"$clusters"
  # The administrator's own policy is left alone.
  if test -e $policy; then policy=""; else printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy; fi
}

allow_starts() { rm -f "$clusters" ${policy:+"$policy"}; }

# Another apt-get may run at the same time: `make -j`.
install_missing() {
  DEBIAN_FRONTEND=noninteractive apt-get install -y -o DPkg::Lock::Timeout=600 --no-install-recommends $missing
}

find_missing
test -n "$missing" || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing $missing"
  trap allow_starts EXIT
  trap 'exit 1' HUP INT TERM
  forbid_starts
  # The lists of packages may be old, or not there.
  { install_missing || { apt-get update && install_missing; }; } >/dev/null 2>&1
  case $missing in *pgbouncer*) update-rc.d pgbouncer disable >/dev/null 2>&1 ;; esac
  find_missing
  test -n "$missing" || exit 0
fi
echo "not found and not installed: $missing; the tests that need it fail (apt-get install $missing)"
