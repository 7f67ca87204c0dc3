# Sourced by what runs in a rootfs of Debian, of the suite $SUITE, which is made at the first use.
# The rootfs lies in .cache/matrix and is never changed: all is written into overlays, so that many use it at
# once. Layers with more packages of Debian's, and what pip fetched, are kept in .cache/packages for the next
# run; $scratch goes with this one. Root only.
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
suite=${SUITE:-trixie}
root=$repo/.cache/matrix/$suite
kept=$repo/.cache/packages/$suite
bound=() # further paths of the host that are the same inside
die() { echo "${0#"$repo"/}: $*" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || die "needs root: it mounts, and changes its root folder"
umask 022 # users of the clusters enter what is made here
mkdir -p "$kept/out" "${root%/*}"
exec 8> "$root.users" # held by all who use the rootfs; what has been killed left its scratch
! flock -n 8 || rm -rf "$kept"/run.*
flock -s 8
scratch=$(mktemp -d "$kept/run.XXXXXX") # beside the layers: an overlay's work folder is on their disk
trap 'rm -rf "$scratch"' EXIT

# once FOLDER WHAT COMMAND...: has the command make the folder, unless it has been made of just WHAT. Who makes
# the same one at that time is waited for.
once() {
    local folder=$1 what=$2
    shift 2
    (
        flock 9
        [ ! -d "$folder" ] || [ "$(cat "$folder.complete" 2> /dev/null)" != "$what" ] || exit 0
        echo "== making ${folder#"$repo"/}"
        rm -rf "$folder" "$folder.complete"
        "$@" > "$folder.log" 2>&1 9>&- || { tail -5 "$folder.log" >&2; die "see $folder.log"; }
        echo "$what" > "$folder.complete"
    ) 9> "$folder.lock"
}

# over LAYERS UPPER COMMAND...: runs it here, with the rootfs below these layers in $merged, and what is
# written there in UPPER.
over() {
    local layers=$1 upper=$2
    shift 2
    mkdir -p "$upper" "$scratch/work" "$scratch/root"
    unshare --mount --pid --fork --kill-child --propagation private env merged="$scratch/root" bash -euc '
        mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=${merged%/*}/work" "$merged"
        shift 2
        status=0 # no exec: bash also buries the orphans
        "$@" || status=$?
        exit $status
    ' over "$layers" "$upper" "$@"
}

# inside LAYERS UPPER COMMAND...: runs it in that rootfs. Mounts and processes are private to it and vanish
# with it.
inside() {
    local layers=$1 upper=$2
    shift 2
    over "$layers" "$upper" env repo="$repo" kept="$kept" bash -euc '
        mount -t proc proc "$merged/proc"
        for path in /dev /sys "$repo" /etc/resolv.conf /etc/hosts /etc/ssl/certs \
            /usr/share/ca-certificates /usr/local/share/ca-certificates "${@:2:$1}"; do
            [ -e "$path" ] || continue
            if [ -d "$path" ]; then mkdir -p "$merged$path"
            else mkdir -p "$merged${path%/*}"; touch "$merged$path"; fi
            mount --rbind "$path" "$merged$path"
        done
        shift $(($1 + 1))
        mkdir -p "$kept/pip" "$merged/root/.cache/pip" "$merged/tmp/packages"
        mount --bind "$kept/pip" "$merged/root/.cache/pip"
        mount --bind "$kept/out" "$merged/tmp/packages"
        printf "#!/bin/sh\nexit 101\n" > "$merged/usr/sbin/policy-rc.d"
        chmod +x "$merged/usr/sbin/policy-rc.d"
        # Users of the clusters reach the clone here, so that tests need no copy of it for them.
        above=$repo
        while above=$(dirname "$above"); [ "$above" != / ]; do chmod a+rx "$merged$above"; done
        mkdir "$merged/.host" # pivot_root, as a process in a chroot may make no user namespaces
        cd "$merged" && pivot_root . .host && umount --lazy /.host && rmdir /.host
        env HOME=/root DEBIAN_FRONTEND=noninteractive "$@"
    ' inside "${#bound[@]}" "${bound[@]}" "$@"
}

# layer NAME PACKAGE...: makes, where it is not there yet, the layer $kept/NAME with these packages.
layer() {
    local name=$1
    shift
    once "$kept/$name" "$made $*" inside "$root" "$kept/$name" sh -euc 'apt-get -qq update
        apt-get -qq -o Dpkg::Options::=--force-unsafe-io install -y --no-install-recommends "$@"' sh "$@"
}

make_rootfs() {
    local script=/usr/share/debootstrap/scripts/$suite
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid # younger than our debootstrap
    mkdir -p "$root"
    debootstrap --variant=minbase --include="$packages" "$suite" "$root" '' "$script"
}

packages=slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,libslurm-dev,munge
packages+=,slurmdbd,slurm-wlm-mysql-plugin,mariadb-server-core,mariadb-client-core
packages+=,gcc,libc6-dev,make,iproute2,nftables,ca-certificates
packages+=,libexpat1,libsqlite3-0,libffi8,liblzma5,libbz2-1.0 # the host's Python
case $suite in bookworm) packages+=,libssl3 ;; *) packages+=,libssl3t64 ;; esac
once "$root" "$packages" make_rootfs
made=$(stat -c %Y "$root.complete") # a layer fits no other rootfs
