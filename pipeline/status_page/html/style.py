"""The CSS of the page, and the headers that allow only this CSS."""

from base64 import b64encode
from hashlib import sha256
from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d5dae0;--track:#e4e8ec;
--busy:#2f6f3e;--idle:#c98a1b;--free:#b7cdea;--unknown:#737b86;--mem:#2a62b0;--pow:#8a4bb0;
--bad:#b3261e;--warn:#8a5200;--info:#57606a;--note:#e8f0fb;--noteb:#fdecea;--notew:#fdf3e4;
--notei:#f6f8fa;--link:#0b57c2}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e4e7eb;--soft:#a0a8b2;--line:#343a42;
--track:#2d333b;--busy:#4fa564;--idle:#f0c060;--free:#37527a;--unknown:#8b94a0;--mem:#6ea3ec;
--pow:#c59be0;--bad:#ff8a80;--warn:#f0b75e;--info:#a0a8b2;--note:#1b2738;--noteb:#331c1b;
--notew:#2c2416;--notei:#1c2026;--link:#8ab8ff}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:100rem;background:var(--bg);color:var(--fg);
font:14px/1.4 system-ui,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;margin:0}
h2{font-size:1.05rem;margin:1.5rem 0 .4rem}
h3{font-size:.95rem;margin:1.2rem 0 .3rem}
p{margin:.2rem 0}
a{color:var(--link)}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
ul{margin:.3rem 0;padding-left:1.2rem}
.notes{margin:.8rem 0;padding:.4rem .8rem;background:var(--note);border-left:4px solid var(--link);
font-weight:600}
.problems{margin:1rem 0}
.problems h2{margin:0 0 .3rem}
.problems ul{list-style:none;margin:0;padding:0}
.problems li{margin:.3rem 0;padding:.35rem .8rem;background:var(--notei);
border-left:4px solid var(--info)}
.problems li.critical{border-color:var(--bad);background:var(--noteb)}
.problems li.warning{border-color:var(--warn);background:var(--notew)}
b{font-weight:600}
.bad,b.critical,a.critical{color:var(--bad);font-weight:600}
.warn,b.warning,a.warning{color:var(--warn);font-weight:600}
b.info,a.info{color:var(--info)}
a.critical,a.warning,a.info{white-space:nowrap}
small,.soft{color:var(--soft);font-size:.85rem}
small{display:block}
small.bad{color:var(--bad)}small.warn{color:var(--warn)}
.ok{color:var(--busy);font-weight:600}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.3rem .9rem .3rem 0;font-weight:normal}
thead th{color:var(--soft);font-size:.85rem;border-bottom:1px solid var(--line)}
tbody{border-bottom:1px solid var(--line)}
.mig th{padding-left:1.2rem}
.num{white-space:nowrap}
.gpus small{white-space:normal}
.gpus .dev{width:20%}.gpus .use,.gpus .mem,.gpus .pow{width:12%}.gpus .tmp{width:7%}
.gpus .held{width:37%}
.day,.cards,.weeks,.bars,.axis{max-width:60rem}
.day .num,.cards .num,.weeks .num,.day thead th+th,.cards thead th+th,.weeks thead th+th{
text-align:right}
.day .dev,.weeks .dev{width:36%}.cards .dev{width:30%}
.cards th,.cards td{padding-right:.6rem}.day thead th,.cards thead th,.weeks thead th{
white-space:nowrap}
.parts .dev{width:20%}
.bar,.hour{display:block;width:100%;max-width:14rem;height:.45rem;margin-top:.2rem}
.hour{height:1.7rem;border-bottom:1px solid var(--track)}
.hour path{fill:none;stroke-width:1.5;vector-effect:non-scaling-stroke}
path.u{stroke:var(--busy)}path.m{stroke:var(--mem)}path.p{stroke:var(--pow)}
.t{fill:var(--track)}rect.u,.busy{fill:var(--busy)}rect.m{fill:var(--mem)}rect.w{fill:var(--warn)}
.idle{fill:var(--idle)}.free{fill:var(--free)}.unknown{fill:var(--unknown)}
.bars{display:block;width:100%;height:4rem}
.axis{display:flex;justify-content:space-between}
.columns{display:grid;gap:0 3rem}
@media (min-width:75rem){.columns{grid-template-columns:1fr 1fr}
.columns h3{margin-top:0}}
.legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem}
.key{width:12px;height:12px;margin-right:6px;border:1px solid var(--soft)}
.who+.who,.who+div{margin-top:.35rem}
.own{display:grid;grid-template-columns:1fr 1fr 5.5rem;gap:.8rem;max-width:28rem;
padding-bottom:.15rem}
.own .bar{height:.3rem;margin-top:.05rem}
.v{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media (max-width:46rem){
body{padding:.6rem}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody{display:block}
tbody{padding:.3rem 0}
tr{display:grid;grid-template-columns:1fr 1fr;column-gap:.8rem;padding:.2rem 0}
.gpus tr{grid-template-columns:9fr 11fr}
tr.mig{margin-left:.6rem;padding-left:.6rem;border-left:2px solid var(--line)}
th,td,.mig th{padding:.1rem 0;min-width:0}
.gpus th,.gpus td,.day th,.cards th,.weeks th,.parts th{width:auto}
.day .num,.cards .num,.weeks .num{text-align:left}
tr>th,.wide{grid-column:1/-1}
.num{white-space:normal}
td.no{display:none}
td[data-l]::before{content:attr(data-l) ": ";color:var(--soft);font-size:.85rem}
.bar,.hour{max-width:none}
}
@media print{
:root{color-scheme:light;font-size:11px;--bg:#fff;--fg:#000;--soft:#444;--line:#aaa;--track:#e4e8ec;
--busy:#2f6f3e;--idle:#c98a1b;--free:#b7cdea;--unknown:#737b86;--mem:#2a62b0;--pow:#8a4bb0;
--bad:#b3261e;--warn:#8a5200;--info:#444;--note:#fff;--noteb:#fff;--notew:#fff;--notei:#fff;
--link:#000}
body{padding:0;font-size:10px;print-color-adjust:exact;-webkit-print-color-adjust:exact}
nav,footer{display:none}
tr,li{break-inside:avoid}
h2,h3{break-after:avoid}
}
"""

_HASH: Final = b64encode(sha256(STYLE.encode()).digest()).decode()

POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Content-Security-Policy that allows no scripts, images or frames, even if HTML is injected."""

HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
