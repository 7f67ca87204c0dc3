# Sourced by what tries the packages as root on a host of its own: each line that it prints holds.
line=/etc/bftrainer/plugstack.conf

holds() { # WHAT COMMAND...
    local what=$1 said
    shift
    if ! said=$("$@" 2>&1); then
        printf 'FAILED: %s\n  %s\n%s\n' "$what" "$*" "$said" >&2
        failed
        exit 1
    fi
    printf '%4d s  %s\n' $SECONDS "$what"
}
within() { # SECONDS COMMAND...
    local until=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $until ] || { "$@"; return 1; }
        sleep 0.2
    done
}
as() { local user=$1; shift; setpriv --reuid "$user" --regid "$user" --init-groups env HOME=/tmp "$@"; }
is() { [ "$1" = "$2" ] || { printf 'not %s but %s\n' "$2" "$1"; return 1; }; }
small() { local mb; mb=$(du -sm /opt/bftrainer | cut -f1); [ "$mb" -lt 250 ] || is "$mb MB" 250; }
documented() {
    local share=/usr/share shell
    gzip -cdf $share/man/man1/bftrainer-status.1* | grep -q -- '--json' || return 1
    for shell in bash-completion/completions/ zsh/site-functions/_ fish/vendor_completions.d/; do
        grep -q _BFTRAINER_COMPLETE $share/${shell}bftrainer* || return 1
    done
}
options() { sbatch --help | grep -o -- '--[a-z-]*' | sort; }
idle() { is "$(sinfo -h -N -p main -o %t | sort -u)" idle; }
ordinary_job() { # says nothing on stderr, and runs
    local said
    rm -f /tmp/ordinary.out
    said=$(as alice sbatch --wait -p main "$@" -o /tmp/ordinary.out --wrap 'echo ran' 2>&1 > /dev/null)
    is "$said" '' && is "$(cat /tmp/ordinary.out)" ran
}
activate() { # the keeper's ADDRESS
    sed -i "s|keeper=HOST:PORT|keeper=$1:6740|" $line
    (umask 077 && head -c 32 /dev/urandom | base64 > /etc/bftrainer/bftrainer.key)
    chown slurm /etc/bftrainer/bftrainer.key
    echo "include $line" >> /etc/slurm/plugstack.conf
}

# trainer MAX: its elements write down who they are, each on its node.
trainer() {
    rm -rf /tmp/trainer
    install -d -o alice /tmp/trainer
    cat > /tmp/train.sh << 'EOF'
#!/bin/bash
echo $$ > /tmp/trainer/$SLURMD_NODENAME
exec sleep 98765
EOF
    as alice sbatch --bftrainer "-N1-$1" -o /dev/null /tmp/train.sh | grep -o '[0-9]*$' > /tmp/trainer.id
}
elements() { # those that run as they were started
    local file
    for file in /tmp/trainer/*; do
        [ "$(tr '\0' ' ' < "/proc/$(cat "$file")/cmdline")" != 'sleep 98765 ' ] || echo "${file##*/}"
    done 2> /dev/null
}
in_peace() { is "$(elements | wc -l)" "$1"; } # HOW MANY
knows_trainer() { as alice bftrainer status | grep -q "^$(cat /tmp/trainer.id) .*running"; }

# make_site PROCTRACK TASK CGROUP: what a cluster of two nodes on this host reads.
make_site() {
    id alice > /dev/null 2>&1 || useradd -m alice
    mkdir -p /run/munge /var/lib/slurm /tmp/spool /etc/slurm
    chown munge /run/munge
    chown slurm /var/lib/slurm
    [ -e /etc/munge/munge.key ] || dd if=/dev/urandom of=/etc/munge/munge.key bs=64 count=1 status=none
    chown munge /etc/munge/munge.key
    chmod 600 /etc/munge/munge.key
    case $(slurmd -V) in
    *' 22.05'*) : > /etc/slurm/cgroup.conf ;; # which does not know "disabled"
    *) echo "CgroupPlugin=$3" > /etc/slurm/cgroup.conf ;;
    esac
    echo '# of the site' > /etc/slurm/plugstack.conf
    cat > /etc/slurm/slurm.conf << EOF
ClusterName=try
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm
SlurmdSpoolDir=/tmp/spool/%n
SlurmdParameters=config_overrides
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd-%n.pid
ProctrackType=proctrack/$1
TaskPlugin=task/$2
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=0,bf_interval=2
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=1 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=bftrainer Nodes=ALL PriorityTier=0 PreemptMode=REQUEUE MaxTime=INFINITE MaxNodes=1 State=UP
EOF
}
# With loopback alone Slurm asks for no IPv4 address.
make_network() {
    ip link set lo up
    ip link add apart type "$@"
    ip address add 192.0.2.1/24 dev apart
    ip link set apart up
}
