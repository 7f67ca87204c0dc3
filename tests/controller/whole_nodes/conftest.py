"""A site of four nodes that trainers have whole; a job_submit.lua changes jobs of some names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.labcluster.site import Site, prepared_site
from tests.controller.sites import leave_nothing

LUA = """
function slurm_job_submit(job, partitions, user)
  if job.name == "replaced" then job.comment = "account=x" end
  if job.name == "moved" then job.partition = "main" end
  if job.name == "shared" then job.shared = 1 end
  if job.name == "licensed" then job.licenses = "home" end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
  return (user == 0 or record.name ~= "locked") and slurm.SUCCESS or slurm.ERROR
end
"""


@pytest.fixture(scope="package")
def site() -> Iterator[Site]:
    with prepared_site(nodes=4, conf=("Licenses=matlab:2,home:1000",)) as made:
        (made.lab.dir / "job_submit.lua").write_text(LUA)
        with (made.lab.dir / "slurm.conf").open("a") as slurm_conf:
            slurm_conf.write("JobSubmitPlugins=lua\n")
        made.run("scontrol", "reconfigure", user="root")
        with made.controlled():
            yield made


@pytest.fixture(autouse=True)
def nothing_is_left(site: Site) -> Iterator[None]:
    yield
    leave_nothing(site)
