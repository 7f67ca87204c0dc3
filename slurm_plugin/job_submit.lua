-- An example for sites that run trainers by partition: slurmctld refuses salloc and srun there.
-- In slurm.conf: JobSubmitPlugins=lua, and MaxNodes=1 on the partition; this file beside it. A site
-- that has a job_submit.lua of its own calls the two functions below in it.
--
-- On a node with the job's batch script, slurmctld tells the plugin the job's partition. On a node
-- without it the plugin knows only what the user's own srun says.

local TRAINERS = "bftrainer"

local function names_trainers(partitions)
  for name in string.gmatch(partitions or "", "[^,]+") do
    if name == TRAINERS then
      return true
    end
  end
  return false
end

-- Whether a new job may be submitted.
function bftrainer_may_submit(job)
  if not names_trainers(job.partition) or (job.script or "") ~= "" then
    return true
  end
  slurm.log_user("partition " .. TRAINERS .. " takes batch scripts only; use sbatch, or another partition")
  return false
end

-- Whether a job may be changed: a user could move a job of salloc there.
function bftrainer_may_modify(job, user)
  if not names_trainers(job.partition) or user == 0 then
    return true
  end
  slurm.log_user("jobs cannot be moved to partition " .. TRAINERS .. "; submit them there")
  return false
end

function slurm_job_submit(job, partitions, user)
  return bftrainer_may_submit(job) and slurm.SUCCESS or slurm.ERROR
end

function slurm_job_modify(job, record, partitions, user)
  return bftrainer_may_modify(job, user) and slurm.SUCCESS or slurm.ERROR
end
