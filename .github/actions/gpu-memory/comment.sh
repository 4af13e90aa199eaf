#!/usr/bin/env bash
# Comments on the pull request of a finished run of the tests how their GPU memory changed since the default branch.
#
# The run may be of a fork. Nothing of its code runs here, and its artifact is only read as figures and text. Which pull request it
# is comes from GitHub, not from the artifact.
set -euo pipefail

package=$(cd "$(dirname "$0")/../../../python" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mark='<!-- GPU memory of tests -->'
api=repos/$GITHUB_REPOSITORY

number=$(gh api --method GET "$api/pulls" -f state=open -f head="$HEAD" --jq ".[] | select(.head.sha == \"$SHA\") | .number")
if [ -z "$number" ]; then
  echo "no open pull request has $SHA as its head"
  exit
fi
accepted=$(gh api --method GET "$api/actions/workflows/$WORKFLOW/runs" -f branch="$MAIN" -f status=success -f event=push \
  -f per_page=1 --jq '.workflow_runs[].id')
for run in "$accepted" "$RUN"; do
  if [ -z "$run" ] || ! gh run download "$run" --repo "$GITHUB_REPOSITORY" --name "$ARTIFACT" --dir "$scratch/$run"; then
    echo "::notice::no artifact $ARTIFACT in ${run:-any run on $MAIN}, so there is nothing to compare"
    exit
  fi
done
{
  echo "$mark"
  PYTHONPATH=$package python3 -m coalesce.compare_tests "$scratch/$accepted/gpu-memory.json" "$scratch/$RUN/gpu-memory.json"
} >"$scratch/body"
comment=$(gh api --paginate "$api/issues/$number/comments" \
  --jq ".[] | select(.user.type == \"Bot\" and (.body | startswith(\"$mark\"))) | .id" | head -n 1)
if [ -n "$comment" ]; then
  gh api --method PATCH "$api/issues/comments/$comment" -F body=@"$scratch/body" --silent
else
  gh api --method POST "$api/issues/$number/comments" -F body=@"$scratch/body" --silent
fi
