# Sourced by scripts that run in a rootfs of Debian's suite $SUITE. The first use makes the rootfs.
# It lies in .cache/matrix and never changes: everything is written into overlays, so that many runs can use
# it at once. Layers with more Debian packages, and pip's downloads, stay in .cache/packages for the next
# run; $scratch is removed at the end of this one. Root only.
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
suite=${SUITE:-trixie}
root=$repo/.cache/matrix/$suite
kept=$repo/.cache/packages/$suite
bound=() # further paths of the host that are the same inside
die() { echo "${0#"$repo"/}: $*" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || die "needs root: it mounts, and changes its root folder"
umask 022 # users of the clusters must be able to read what is made here
mkdir -p "$kept/out" "${root%/*}"
exec 8> "$root.users" # locked by all users of the rootfs; without any, scratch folders of killed runs can go
! flock -n 8 || rm -rf "$kept"/run.*
flock -s 8
scratch=$(mktemp -d "$kept/run.XXXXXX") # beside the layers: an overlay's work folder is on their disk
trap 'rm -rf "$scratch"' EXIT

# once FOLDER WHAT COMMAND...: lets the command make the folder, unless it was made from the same WHAT. If
# another process is making it now, waits for that process.
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

# over LAYERS UPPER COMMAND...: runs the command here, with these layers over the rootfs mounted at $merged.
# What is written there goes to UPPER.
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

# inside LAYERS UPPER COMMAND...: runs the command in that rootfs. Its mounts and processes are private and
# end with it.
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
        # Here users of the clusters can read the clone, so tests need no copy for them.
        above=$repo
        while above=$(dirname "$above"); [ "$above" != / ]; do chmod a+rx "$merged$above"; done
        mkdir "$merged/.host" # pivot_root, because a process in a chroot may not make user namespaces
        cd "$merged" && pivot_root . .host && umount --lazy /.host && rmdir /.host
        env HOME=/root DEBIAN_FRONTEND=noninteractive "$@"
    ' inside "${#bound[@]}" "${bound[@]}" "$@"
}

# layer NAME PACKAGE...: makes the layer $kept/NAME with these packages, if it is not there yet.
layer() {
    local name=$1
    shift
    once "$kept/$name" "$made $*" inside "$root" "$kept/$name" sh -euc 'apt-get -qq update
        apt-get -qq -o Dpkg::Options::=--force-unsafe-io install -y --no-install-recommends "$@"' sh "$@"
}

make_rootfs() {
    local script=/usr/share/debootstrap/scripts/$suite
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid # the suite is newer than our debootstrap
    mkdir -p "$root"
    debootstrap --variant=minbase --include="$packages" "$suite" "$root" '' "$script"
}

packages=slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,libslurm-dev,munge
packages+=,slurmdbd,slurm-wlm-mysql-plugin,mariadb-server-core,mariadb-client-core
packages+=,gcc,libc6-dev,make,iproute2,nftables,ca-certificates
packages+=,libexpat1,libsqlite3-0,libffi8,liblzma5,libbz2-1.0 # the host's Python
case $suite in bookworm) packages+=,libssl3 ;; *) packages+=,libssl3t64 ;; esac
once "$root" "$packages" make_rootfs
made=$(stat -c %Y "$root.complete") # a layer fits only this rootfs
