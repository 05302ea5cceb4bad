"""The CSS of the page, and the headers that allow only this CSS."""

from base64 import b64encode
from hashlib import sha256
from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d5dae0;--track:#e4e8ec;
--fill:#2f6f3e;--mem:#2a62b0;--pow:#8a4bb0;--alloc:#9db9e0;--bad:#b3261e;--warn:#8a5200;
--note:#f6f8fa;--noteb:#fdecea;--notew:#fdf3e4;--link:#0b57c2}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e4e7eb;--soft:#a0a8b2;--line:#343a42;
--track:#2d333b;--fill:#5cb270;--mem:#6ea3ec;--pow:#c59be0;--alloc:#3f5f8c;--bad:#ff8a80;
--warn:#f0b75e;--note:#1c2026;--noteb:#331c1b;--notew:#2c2416;--link:#8ab8ff}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:90rem;background:var(--bg);color:var(--fg);
font:14px/1.4 system-ui,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;margin:0}
h2{font-size:1.05rem;margin:1.5rem 0 .4rem}
h3{font-size:.95rem;margin:1rem 0 .3rem}
p{margin:.2rem 0}
a{color:var(--link)}
ul{margin:.3rem 0;padding-left:1.2rem}
.problems{margin:1rem 0;padding:.5rem .8rem;background:var(--note);
border-left:4px solid var(--soft)}
.problems.critical{border-color:var(--bad);background:var(--noteb)}
.problems.warning{border-color:var(--warn);background:var(--notew)}
.problems h2{margin:0}
.problems ul{list-style:none;padding:0}
.problems li{padding:.3rem 0}
.problems li+li{border-top:1px solid var(--line)}
b.critical{color:var(--bad)}b.warning{color:var(--warn)}b.info{color:var(--soft)}
.ok{color:var(--fill)}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;font-weight:normal}
thead th{color:var(--soft);font-size:.85rem;border-bottom:1px solid var(--line)}
tbody{border-bottom:1px solid var(--line)}
tbody th b,.who b{font-weight:600}
.mig th{padding-left:1.2rem}
.num{white-space:nowrap}
.gpus .dev{width:21%}.gpus .use,.gpus .mem,.gpus .pow{width:13%}.gpus .held{width:33%}
.gpus small{white-space:normal}
.day .dev,.cards .dev{width:44%}
small,.soft{color:var(--soft);font-size:.85rem}
small{display:block}
.bad{color:var(--bad);font-weight:600}
.warn{color:var(--warn);font-weight:600}
.bar,.hour{display:block;width:100%;max-width:12rem;height:.45rem;margin-top:.2rem}
.hour{height:1.7rem;border-bottom:1px solid var(--track)}
.hour path{fill:none;stroke-width:1.5;vector-effect:non-scaling-stroke}
path.u{stroke:var(--fill)}path.m{stroke:var(--mem)}path.p{stroke:var(--pow)}
.t{fill:var(--track)}rect.u{fill:var(--fill)}rect.m{fill:var(--mem)}rect.w{fill:var(--warn)}
.bars{display:block;width:100%;max-width:48rem;height:4rem}
.bars .m{fill:var(--alloc)}
.who+.who,.who+div{margin-top:.3rem}
details{font-size:.85rem}summary{color:var(--soft);cursor:pointer}
.v{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media (max-width:46rem){
body{padding:.6rem}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody{display:block}
tbody{padding:.3rem 0}
tr{display:grid;grid-template-columns:1fr 1fr;column-gap:.8rem;padding:.2rem 0}
tr.mig{grid-template-columns:1fr .8fr 1.2fr;margin-left:.6rem;padding-left:.6rem;
border-left:2px solid var(--line)}
th,td,.mig th{padding:.1rem 0;min-width:0}
.gpus th,.gpus td,.day th,.cards th{width:auto}
tr>th,.wide{grid-column:1/-1}
tr.mig>th{grid-column:auto}
.mig th .soft{display:block}
.num{white-space:normal}
td.no{display:none}
td[data-l]::before{content:attr(data-l) ": ";color:var(--soft);font-size:.85rem}
.mig td[data-l]::before{content:none}
.bar,.hour{max-width:none}
}
"""

_HASH: Final = b64encode(sha256(STYLE.encode()).digest()).decode()

POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content-Security-Policy that allows no scripts, images or frames, even if HTML is injected."""

HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
